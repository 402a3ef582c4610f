"""Passkeys: parsing and checking what a browser's WebAuthn API returned, with django-allauth's state in the session."""

import json
from ipaddress import ip_address
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import auth
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.http.request import split_domain_port

MAX_CREDENTIAL = 16 * 1024
"""Maximum length of a credential as JSON; real ones have some 2 KB."""
MAX_PASSKEY_NAME = 64
MAX_PASSKEYS = 20


def passkey_host_fault(request: HttpRequest) -> str:
    """Return the host of the request if it is an IP address, for which browsers allow no passkeys; else nothing."""
    host = split_domain_port(request.get_host())[0]
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        return ""


def parse_credential(text: str) -> dict[str, Any] | None:
    """Return a credential that a browser sent as JSON, or None if it is none."""
    if not text or len(text) > MAX_CREDENTIAL:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def passkey_of_assertion(user: User | None, text: str) -> Authenticator | None:
    """Return the passkey that signed the challenge in the session, or None.

    Without a user, the credential names its owner, who must have been verified by the device: it stands for password
    and second factor.
    """
    credential = parse_credential(text)
    if credential is None:
        return None
    try:
        parsed = auth.parse_authentication_response(credential)
        if user is None and not parsed.response.authenticator_data.is_user_verified():
            return None
        owner = user or auth.extract_user_from_response(credential)
        return auth.complete_authentication(owner, credential)
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError):
        return None  # malformed in one of the many ways that a hostile client may choose


def registered_credential(text: str) -> dict[str, Any] | None:
    """Return the new credential if it answers the challenge in the session, or None."""
    credential = parse_credential(text)
    if credential is None:
        return None
    try:
        auth.parse_registration_response(credential)
        auth.complete_registration(credential)
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return credential
