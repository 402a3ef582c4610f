"""Passkeys: parsing and checking what a browser's WebAuthn API returned, with django-allauth's state in the session."""

import json
import struct
from ipaddress import ip_address
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import auth
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.request import split_domain_port
from fido2 import cbor
from fido2.utils import websafe_encode
from fido2.webauthn import UserVerificationRequirement

MAX_CREDENTIAL = 16 * 1024
"""Maximum length of a credential as JSON; real ones have some 2 KB."""
MALFORMED = (
    *(ValidationError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError),
    struct.error,
)
"""Exceptions of the libraries for malformed credentials; a hostile client can cause each of them."""
MAX_PASSKEY_NAME = 64
MAX_PASSKEYS = 20


def has_passkey(user: User) -> bool:
    return bool(Authenticator.objects.filter(user=user, type=Authenticator.Type.WEBAUTHN).exists())


def people_with_passkeys() -> QuerySet[Authenticator, int]:
    """Return a query for the ids of the people who have a passkey."""
    found: QuerySet[Authenticator, int] = Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN).values_list(
        "user_id", flat=True
    )
    return found


def signing_options(user: User, challenge: bytes) -> dict[str, Any]:
    """Return the options with which a browser has `challenge` signed by one of the user's passkeys."""
    options, _state = auth.get_server().authenticate_begin(
        auth.get_credentials(user), user_verification=UserVerificationRequirement.REQUIRED, challenge=challenge
    )
    return dict(options)


def signature_of(user: User, challenge: bytes, text: str) -> dict[str, Any] | None:
    """Return the credential, with its public key, if a passkey of the user signed `challenge`; else None.

    The device must have verified its user. The origin is that of the current request.
    """
    credential = parse_credential(text)
    if credential is None:
        return None
    state = {"challenge": websafe_encode(challenge), "user_verification": UserVerificationRequirement.REQUIRED}
    try:
        used = auth.get_server().authenticate_complete(state, auth.get_credentials(user), credential)
    except MALFORMED:
        return None
    response = credential["response"]
    kept = {name: response[name] for name in ("clientDataJSON", "authenticatorData", "signature")}
    return {
        "id": websafe_encode(used.credential_id),
        "public_key": websafe_encode(cbor.encode(used.public_key)),
        **kept,
    }


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
    except MALFORMED:
        return None


def registered_credential(text: str) -> dict[str, Any] | None:
    """Return the new credential if it answers the challenge in the session, or None."""
    credential = parse_credential(text)
    if credential is None:
        return None
    try:
        auth.parse_registration_response(credential)
        auth.complete_registration(credential)
    except MALFORMED:
        return None
    return credential
