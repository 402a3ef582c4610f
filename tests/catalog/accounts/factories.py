"""Builders for tests of accounts: second factors, and pages over HTTPS on a host name, as passkeys need them."""

import json

from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP
from django.contrib.auth.models import User

from catalog.access.second_factors import remember_step
from tests.pages import Pages
from tests.passkeys import HOST, Passkey

SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


def secure_pages(user: User | None = None) -> Pages:
    pages = Pages(user)
    pages.client.defaults.update({"HTTP_HOST": HOST, "wsgi.url_scheme": "https", "HTTP_REFERER": f"https://{HOST}/"})
    return pages


def add_app(user: User) -> str:
    """Give the user an authenticator app and recovery codes; return the app's key."""
    remember_step(TOTP.activate(user, SECRET).instance, 0)
    RecoveryCodes.activate(user)
    return SECRET


def codes_of(user: User) -> list[str]:
    codes: list[str] = RecoveryCodes.activate(user).get_unused_codes()
    return codes


def add_passkey(user: User, name: str = "Phone") -> Passkey:
    """Add a passkey on the page and return it."""
    pages, passkey = secure_pages(user), Passkey()
    pages.open("/profile/security/passkeys/new/")
    credential = passkey.create(json.loads(pages.context["options"]))
    pages.send("/profile/security/passkeys/new/", {"name": name, "credential": credential})
    assert Authenticator.objects.filter(user=user, type=Authenticator.Type.WEBAUTHN).exists()
    return passkey
