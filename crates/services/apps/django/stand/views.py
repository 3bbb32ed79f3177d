import time

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseGone
from django.middleware.csrf import get_token
from django.shortcuts import redirect
from django.views.decorators.cache import cache_control
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.vary import vary_on_headers

TEXT = "<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n" * 60


@cache_control(public=True, max_age=60)
def page(request):
    return HttpResponse(f"<h1>page</h1>\n{TEXT}")


@cache_control(public=True, max_age=1)
def article(request):
    return HttpResponse(f"<h1>article</h1>\n{TEXT}")


@cache_control(public=True, max_age=60)
@vary_on_headers("Accept-Language")
def language(request):
    language = "de" if request.headers.get("Accept-Language", "").startswith("de") else "en"
    return HttpResponse(f"<h1>language={language}</h1>\n{TEXT}", headers={"Content-Language": language})


@csrf_exempt
def login(request):
    request.session["user"] = request.POST.get("user", "nobody")
    return redirect("/account")


def account(request):
    return HttpResponse(f"<h1>user={request.session.get('user', 'nobody')}</h1>\n{TEXT}")


@cache_control(max_age=0)
def expired(request):
    time.sleep(0.7)
    return account(request)


@cache_control(public=True, max_age=60)
def form(request):
    return HttpResponse(f"<input value='token={get_token(request)}'>\n{TEXT}")


@cache_control(public=True, max_age=1)
def until(request, moment):
    if time.time() >= moment:
        raise Http404
    return HttpResponse(f"<h1>still here</h1>\n{TEXT}")


def gone(request):
    return HttpResponseGone()


def forbidden(request):
    raise PermissionDenied


def error(request):
    raise RuntimeError("an error of the application")


def old(request):
    return redirect("/page")


def slow(request):
    time.sleep(float(request.GET["seconds"]))
    return page(request)


@cache_control(no_store=True)
def report(request):
    time.sleep(float(request.GET["seconds"]))
    return account(request)


@csrf_exempt
@cache_control(no_store=True)
def echo(request):
    body = request.body
    return HttpResponse(f"method={request.method} length={len(body)} sum={sum(body) % 2**32}\n")
