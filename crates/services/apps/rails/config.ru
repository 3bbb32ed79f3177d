# frozen_string_literal: true

require_relative "config/application"

use Rack::CommonLogger, File.open(File.join(Rails.root, "access.log"), "a").tap { |log| log.sync = true }
run Rails.application
