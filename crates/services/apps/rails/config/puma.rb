# frozen_string_literal: true

bind "tcp://127.0.0.1:#{ENV.fetch("PORT")}"
environment "production"
workers 2
threads 50, 50
persistent_timeout 1
