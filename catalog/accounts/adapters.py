"""Adapters of django-allauth: its rules replaced by those of this product.

Its rate limits, replay protection and messages are not used: they live in Django's cache, which each process has for
itself, or in templates of its own.
"""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from catalog.access import second_factors
from catalog.access.roles import SIGNED_IN_AT_KEY, is_fresh_sign_in
from catalog.access.sign_in import authenticate_user, client_address
from catalog.ui.toasts import announce

ISSUER = "Toolgate"
UNKNOWN_ADDRESS = "0.0.0.0"  # noqa: S104 - stored where a proxy on the same machine connects without an address


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc] # django-allauth ships no types
    """Accounts are created by administrators. `catalog.access.sign_in` checks passwords and counts attempts."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Return the user of a username and a password, or None. Raises SignInThrottled."""
        return authenticate_user(request, username=credentials["username"], password=credentials["password"])

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_address(request) or UNKNOWN_ADDRESS

    def is_safe_url(self, url: str) -> bool:
        """Return whether a page of this site has the address; other hosts are never safe, allowed or not."""
        return url_has_allowed_host_and_scheme(
            url, allowed_hosts={self.request.get_host()}, require_https=self.request.is_secure()
        )

    def is_ajax(self, request: HttpRequest) -> bool:
        return False

    def is_reauthentication_required(self, *, app: str, **options: Any) -> bool:
        """Return whether the sign-in of the session is too old. Pages ask for a new one before they come here."""
        return not is_fresh_sign_in(self.request.session.get(SIGNED_IN_AT_KEY))

    def get_reauthentication_methods(self, user: User | AnonymousUser) -> list[dict[str, Any]]:
        return []

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        announce(request, _("This account is disabled. Ask an administrator."))
        return redirect("sign-in")

    def add_message(self, *args: Any, **options: Any) -> None:
        """Say nothing: the pages say it in their own words."""

    def send_notification_mail(
        self, template_prefix: str, user: Any, context: dict[str, Any] | None = None, email: str | None = None
    ) -> None:
        """Send no mail of django-allauth's; the pages send their own (`catalog.accounts.mails`)."""


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc] # as above
    """Encrypts the keys of factors, and names this product and the username where a person sees them."""

    def encrypt(self, text: str) -> str:
        return second_factors.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        return second_factors.decrypt(encrypted_text)

    def get_totp_issuer(self) -> str:
        return ISSUER

    def _get_site_name(self) -> str:
        return ISSUER

    def _get_user_identifier(self, user: User) -> str:
        return user.get_username()

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        return second_factors.can_remove_factor(authenticator)
