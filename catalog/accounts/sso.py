"""Sign-in by OpenID Connect, on django-allauth's provider. Imported only where TOOLGATE_SSO_ISSUER is set.

An account is linked by issuer and subject, never by a mail address or a name. A sign-in is as old as the provider says
(`auth_time`): a session there may be days old. All requests to the provider pass the checks of `catalog.core.egress`.
"""

import logging
import math
import re
from collections.abc import Mapping
from typing import Any, cast

import requests
from allauth.account.signals import user_logged_in
from allauth.account.utils import get_next_redirect_url, user_username
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base import ProviderException
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from allauth.socialaccount.signals import social_account_added
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from catalog.access.people import (
    COLUMNS,
    administrators_who_can_sign_in,
    check_columns,
    held_roles,
    other_groups,
    people_locked,
    set_groups,
    sso_provider,
)
from catalog.access.roles import ADMINISTRATOR, SIGNED_IN_AT_KEY, is_fresh_sign_in
from catalog.accounts.changes import fresh_sign_in_required, record_change
from catalog.accounts.mails import notify_of_change
from catalog.core import clock, egress
from catalog.errors import ParameterError
from catalog.ui.requests import PageRequest, server_address
from catalog.ui.toasts import announce

log = logging.getLogger("toolgate.accounts")
SECONDS = 10.0
MAX_ANSWER = 256 * 1024
USERNAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Usernames taken over from the provider; for others, one is made of the name."""
FAULTS = (OAuth2Error, requests.RequestException, ProviderException, KeyError, TypeError, ValueError, AttributeError)
"""Exceptions caused by an unreachable, misconfigured or hostile provider."""


def is_linked(user: User) -> bool:
    return bool(SocialAccount.objects.filter(user=user, provider=sso_provider()).exists())


class GuardedAdapter(BaseAdapter):
    """Sends what django-allauth requests through the checks of outgoing addresses; redirects are not followed."""

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        body, headers = request.body or b"", {name: str(value) for name, value in request.headers.items()}
        try:
            answer = egress.exchange(
                str(request.method),
                str(request.url),
                body.encode() if isinstance(body, str) else cast("bytes", body),
                headers,
                seconds=SECONDS,
                max_bytes=MAX_ANSWER,
            )
        except (egress.RequestNotSent, egress.ResponseTooLarge) as error:
            raise requests.ConnectionError(str(error)) from None
        response = requests.Response()
        response.status_code, response.url, response.request = answer.status_code, str(request.url), request
        response.headers = CaseInsensitiveDict(answer.headers)
        response._content, response._content_consumed = answer.content, True
        if response.is_redirect:
            raise requests.TooManyRedirects("The provider redirects.")
        return response

    def close(self) -> None:
        """Close nothing: the client is that of the process."""


class SsoOAuth2Adapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc] # django-allauth ships no types
    """Requires an ID token of the configured issuer, and keeps none of its claims."""

    @property
    def openid_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().openid_config
        if config.get("issuer", "").rstrip("/") != settings.TOOLGATE_SSO_ISSUER:
            raise OAuth2Error("The discovery document names another issuer.")
        return config

    def complete_login(self, request: HttpRequest, app: SocialApp, token: SocialToken, **options: Any) -> SocialLogin:
        if not options["response"].get("id_token"):
            raise OAuth2Error("The provider sent no ID token.")
        login = super().complete_login(request, app, token, **options)
        claims = login.account.extra_data
        subjects = {part["sub"] for part in (claims.get("userinfo"), claims["id_token"]) if part}
        if len(subjects) != 1:
            raise OAuth2Error("The subjects of ID token and user info differ.")
        login.account.extra_data = {}
        login.email_addresses = []
        login.toolgate_groups = _groups_in({**claims["id_token"], **(claims.get("userinfo") or {})})
        login.toolgate_signed_in = _sign_in_time(claims["id_token"])
        return login

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return server_address(request) + reverse("sso-callback")


class SsoProvider(OpenIDConnectProvider):  # type: ignore[misc] # as above
    oauth2_adapter_class = SsoOAuth2Adapter

    @classmethod
    def for_request(cls, request: HttpRequest) -> "SsoProvider":
        app = SocialApp(
            provider=cls.id,
            provider_id=sso_provider(),
            name=settings.TOOLGATE_SSO_NAME,
            client_id=settings.TOOLGATE_SSO_CLIENT_ID,
            secret=settings.TOOLGATE_SSO_CLIENT_SECRET,
            settings={"server_url": settings.TOOLGATE_SSO_ISSUER, "oauth_pkce_enabled": True},
        )
        return cls(request, app=app)


class SsoAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc] # as above
    """Creates accounts only if TOOLGATE_SSO_CREATE is on, and gives people the groups that the provider names."""

    def get_provider(self, request: HttpRequest, provider: str, client_id: str | None = None) -> SsoProvider:
        return SsoProvider.for_request(request)

    def list_providers(self, request: HttpRequest) -> list[SsoProvider]:
        return [SsoProvider.for_request(request)]

    def get_requests_session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        for scheme in ("https://", "http://"):
            session.mount(scheme, GuardedAdapter())
        return session

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        if not settings.TOOLGATE_SSO_CREATE:
            message = _("You have no account here yet, or it is not linked. Ask an administrator.")
            raise ImmediateHttpResponse(_refuse(request, message))
        return True

    def populate_user(self, request: HttpRequest, sociallogin: SocialLogin, data: Mapping[str, Any]) -> User:
        user: User = super().populate_user(request, sociallogin, data)
        if not USERNAME.fullmatch(user.username):
            user_username(user, "")
        return user

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        sociallogin.state[SIGNED_IN_AT_KEY] = sociallogin.toolgate_signed_in  # kept while a second factor is asked for
        if sociallogin.is_existing and sociallogin.state.get("process") != "connect":
            apply_groups(sociallogin.user, sociallogin.toolgate_groups)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        with people_locked(AnonymousUser()):
            for column in COLUMNS:  # the provider's names and address are kept as far as People would accept them
                try:
                    accepted = check_columns({column: getattr(sociallogin.user, column)})[column]
                except ParameterError:
                    accepted = ""
                setattr(sociallogin.user, column, accepted)
            user: User = super().save_user(request, sociallogin, form)
            record_change("account.sso_linked", user)
            apply_groups(user, sociallogin.toolgate_groups)
        return user

    def on_authentication_error(self, request: HttpRequest, provider: SsoProvider, **options: Any) -> None:
        """Lead back to the sign-in page. The reason is logged by its type: it may hold an answer of the provider."""
        log.warning("sign-in by %s failed: %s", provider.name, type(options.get("exception")).__name__)
        raise ImmediateHttpResponse(_refuse(request, _failed()))

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: SocialAccount) -> str:
        return reverse("security")


def _groups_in(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return our groups for the values of the claim, by TOOLGATE_SSO_GROUPS; none if the claim is missing."""
    found = claims.get(settings.TOOLGATE_SSO_GROUPS_CLAIM, [])
    values = {found} if isinstance(found, str) else {each for each in found if isinstance(each, str)}
    return frozenset(group for value, group in settings.TOOLGATE_SSO_GROUPS.items() if value in values)


def _sign_in_time(claims: Mapping[str, Any]) -> float | None:
    """Return when the person signed in at the provider, in seconds since 1970; None if the ID token does not say."""
    found = claims.get("auth_time")
    return min(found, clock.now().timestamp()) if isinstance(found, int | float) and 0 < found < math.inf else None


def apply_groups(user: User, names: frozenset[str]) -> None:
    """Put the user into these groups, and out of the other groups that TOOLGATE_SSO_GROUPS maps to.

    Other groups stay. The last administrator who can sign in stays one, as they could not be made one again.
    """
    mapped = frozenset(settings.TOOLGATE_SSO_GROUPS.values())
    with people_locked(AnonymousUser()):
        user.refresh_from_db(fields=["is_staff", "is_superuser"])
        held = {*held_roles(user), *other_groups(user)}
        kept = held - (mapped - names)
        if ADMINISTRATOR in held - kept and not administrators_who_can_sign_in().exclude(pk=user.pk).exists():
            log.warning("the last administrator keeps the role, although the provider no longer names their group")
            kept.add(ADMINISTRATOR)
        if kept | names != held:
            set_groups(user, kept | names)


def _failed() -> str:
    return _("%(name)s could not sign you in. Try again, or sign in with your password.") % {
        "name": settings.TOOLGATE_SSO_NAME
    }


def _refuse(request: HttpRequest, message: str) -> HttpResponse:
    announce(request, message)
    return redirect("security" if request.user.is_authenticated else "sign-in")


@never_cache
@require_safe
def sso_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider. `again` asks it for a new sign-in, even if there is a session.

    With `max_age`, the provider must say when the person signed in (OpenID Connect Core 3.1.2.1). A session there need
    not be younger than one here.
    """
    is_again = "again" in request.GET
    asked = {"prompt": "login", "max_age": "0"} if is_again else {"max_age": str(settings.SESSION_COOKIE_AGE)}
    return _to_provider(request, "login", get_next_redirect_url(request), asked, is_again=is_again)


@never_cache
@require_safe
def sso_callback(request: HttpRequest) -> HttpResponse:
    """Sign in whom the provider names, or link their account there with the one that is signed in here."""
    adapter = SsoOAuth2Adapter(request, sso_provider())
    try:
        response: HttpResponse = OAuth2CallbackView.adapter_view(adapter)(request)
    except FAULTS as error:
        log.warning("sign-in by %s failed: %s", settings.TOOLGATE_SSO_NAME, type(error).__name__)
        return _refuse(request, _failed())
    return response


@require_POST
@fresh_sign_in_required
def link_sso(request: PageRequest) -> HttpResponse:
    """Show a link to the provider by which an account there is linked with this one.

    A redirect would not do: the policy of the page with the form forbids forms that lead to other sites.
    """
    response = _to_provider(request, "connect", reverse("security"), {"prompt": "login"})
    if response["Location"].startswith("/"):
        return response
    return render(request, "accounts/sso_continue.html", {"section": "security", "address": response["Location"]})


@require_POST
@fresh_sign_in_required
def unlink_sso(request: PageRequest) -> HttpResponse:
    """End the link, unless it is the only way to sign in."""
    links = SocialAccount.objects.filter(user=request.user, provider=sso_provider())
    if not links.exists():
        raise Http404
    if not request.user.has_usable_password():
        announce(request, _("This is your only way to sign in. Ask an administrator for a password first."))
        return redirect("security")
    with transaction.atomic():
        links.delete()
        record_change("account.sso_unlinked", request.user)
    notify_of_change(request.user, _("The sign-in by %(name)s was unlinked.") % {"name": settings.TOOLGATE_SSO_NAME})
    announce(request, _("Unlinked."))
    return redirect("security")


@receiver(user_logged_in)
def on_sign_in(sender: object, *, request: HttpRequest, sociallogin: SocialLogin | None = None, **kwargs: Any) -> None:
    """Store the time at which the person signed in at the provider as that of the session."""
    if sociallogin is None:
        return
    request.session[SIGNED_IN_AT_KEY] = sociallogin.state[SIGNED_IN_AT_KEY]
    if sociallogin.state.get("is_again") and not is_fresh_sign_in(sociallogin.state[SIGNED_IN_AT_KEY]):
        message = _("%(name)s did not confirm that you signed in again just now. Ask an administrator.")
        announce(request, message % {"name": settings.TOOLGATE_SSO_NAME})


@receiver(social_account_added)
def on_link(sender: object, *, request: HttpRequest, sociallogin: SocialLogin, **kwargs: Any) -> None:
    """Record that a person linked their account at the provider."""
    record_change("account.sso_linked", sociallogin.user)
    notify_of_change(sociallogin.user, _("Sign-in by %(name)s was linked.") % {"name": settings.TOOLGATE_SSO_NAME})
    announce(request, _("Linked."))


def _to_provider(
    request: HttpRequest, process: str, next_url: str | None, parameters: dict[str, str], *, is_again: bool = False
) -> HttpResponse:
    try:
        response: HttpResponse = SsoProvider.for_request(request).redirect(
            request, process=process, next_url=next_url, auth_params=parameters, is_again=is_again
        )
    except FAULTS as error:
        log.warning("%s could not be reached: %s", settings.TOOLGATE_SSO_NAME, type(error).__name__)
        return _refuse(request, _failed())
    return response
