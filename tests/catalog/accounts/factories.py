"""Builders for tests of accounts: second factors, and pages over HTTPS on a host name, as passkeys need them."""

import json

from allauth.mfa.adapter import get_adapter
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP
from allauth.mfa.webauthn.internal.auth import WebAuthn
from django.contrib.auth.models import User
from fido2.utils import websafe_encode

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
    """Store a passkey of the user and return it."""
    passkey = Passkey()
    handle = websafe_encode(get_adapter().get_public_key_credential_user_entity(user)["id"])
    credential = passkey.create({"publicKey": {"user": {"id": handle}, "challenge": ""}})
    WebAuthn.add(user, name, json.loads(credential))
    return passkey
