# frozen_string_literal: true

require "rails"
require "action_controller/railtie"

# The Rails stack: the middleware of `rails new`, and Rack::Deflater.
class Stand < Rails::Application
  config.load_defaults 6.1
  config.root = File.expand_path("..", __dir__)
  config.eager_load = true
  config.consider_all_requests_local = false
  config.secret_key_base = "a secret of tests" * 4
  config.hosts.clear
  config.logger = Logger.new(File.join(config.root, "rails.log"))
  config.public_file_server.enabled = true
  config.public_file_server.headers = { "Cache-Control" => "public, max-age=1" }
  config.middleware.insert_before 0, Rack::Deflater
end

Rails.application.initialize!
