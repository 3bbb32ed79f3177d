# frozen_string_literal: true

Rails.application.routes.draw do
  %w[page article language account form gone forbidden error slow report].each { |name| get name, to: "pages##{name}" }
  get "account/expired", to: "pages#expired"
  get "until/:moment", to: "pages#until"
  get "old", to: redirect("/page", status: 302)
  post "login", to: "pages#login"
  match "echo", to: "pages#echo", via: %i[get post put]
end
