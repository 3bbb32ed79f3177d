"""The settings of `django-admin startproject`, with gzip, conditional GET and WhiteNoise."""

from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "a secret of tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "stand.urls"
WSGI_APPLICATION = "stand.wsgi.application"
DATABASES = {}
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
USE_TZ = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 << 20
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "static"
WHITENOISE_MAX_AGE = 60


def WHITENOISE_ADD_HEADERS_FUNCTION(headers, path, url):
    if url.endswith(".css"):
        headers["Cache-Control"] = "max-age=1, public"
