"""URLs of sign-in and of a person's own account. Of django-allauth's views only those listed here are reachable."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from catalog.accounts.sign_in import sign_in

urlpatterns = [
    path("sign-in/", sign_in, name="sign-in"),
    path("sign-in/", sign_in, name="account_login"),  # django-allauth redirects to this name
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
]
