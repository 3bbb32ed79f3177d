# frozen_string_literal: true

class PagesController < ActionController::Base
  TEXT = "<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n" * 60

  skip_forgery_protection only: %i[login echo]

  def page
    expires_in 60.seconds, public: true
    html "<h1>page</h1>"
  end

  def article
    expires_in 1.second, public: true
    html "<h1>article</h1>"
  end

  def language
    language = request.headers["Accept-Language"].to_s.start_with?("de") ? "de" : "en"
    expires_in 60.seconds, public: true
    response.headers["Vary"] = "Accept-Language"
    response.headers["Content-Language"] = language
    html "<h1>language=#{language}</h1>"
  end

  def login
    session[:user] = params[:user]
    redirect_to "/account", status: 303
  end

  def account
    html "<h1>user=#{session[:user] || "nobody"}</h1>"
  end

  def expired
    sleep 0.7
    response.headers["Expires"] = "0"
    response.headers["Cache-Control"] = "max-age=0"
    account
  end

  def form
    token = cookies[:visitor] || SecureRandom.hex(8)
    cookies[:visitor] = token unless cookies[:visitor]
    expires_in 60.seconds, public: true
    html "<input value='token=#{token}'>"
  end

  def until
    raise ActionController::RoutingError, "not here" if Time.now.to_i >= params[:moment].to_i

    expires_in 1.second, public: true
    html "<h1>still here</h1>"
  end

  def gone
    head :gone
  end

  def forbidden
    head :forbidden
  end

  def error
    raise "an error of the application"
  end

  def slow
    sleep params[:seconds].to_f
    page
  end

  def report
    sleep params[:seconds].to_f
    response.headers["Cache-Control"] = "no-store"
    account
  end

  def echo
    body = request.body.read
    response.headers["Cache-Control"] = "no-store"
    render plain: "method=#{request.method} length=#{body.bytesize} sum=#{body.sum(32)}\n"
  end

  private

  def html(heading)
    render html: "#{heading}\n#{TEXT}".html_safe
  end
end
