from django.urls import path

from . import views

urlpatterns = [
    path("page", views.page),
    path("article", views.article),
    path("language", views.language),
    path("login", views.login),
    path("account", views.account),
    path("account/expired", views.expired),
    path("form", views.form),
    path("until/<int:moment>", views.until),
    path("gone", views.gone),
    path("forbidden", views.forbidden),
    path("error", views.error),
    path("old", views.old),
    path("slow", views.slow),
    path("report", views.report),
    path("echo", views.echo),
]
