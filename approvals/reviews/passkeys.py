"""Approvals signed by a passkey, for policies with the term `fresh_passkey`.

The passkey signs SHA-256 over a nonce of this server and all that is decided: the request, its round and digest, the
edit, the verdict, and the answer instead of the tool. A nonce can be used once, within two minutes.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from approvals.models import ApprovalNonce, ApprovalRequest
from approvals.reviews.edits import Edit
from approvals.states import ReviewVerdict
from catalog.access.passkeys import signature_of
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, digest

NONCE_LIFETIME = timedelta(minutes=2)
KEPT = timedelta(hours=1)
"""Time for which nonces are kept after they were made."""
SIGNED_VERDICTS = frozenset({ReviewVerdict.APPROVE, ReviewVerdict.RESPOND})
DOMAIN = "approval-passkey-v1"
SIGNATURE_REQUIRED = (
    "The policy requires that you sign this with a passkey, on the request's page: neither a token, nor a batch, nor a "
    "slice can approve it."
)
SIGNATURE_REFUSED = (
    "The signature of the passkey is not valid for this decision, or is older than two minutes. Sign again."
)


@dataclass(frozen=True, slots=True)
class PasskeySignature:
    """A nonce and the credential, as JSON, by which a browser signed the challenge made of it."""

    nonce: str
    credential: str


def make_nonce(person: User) -> str:
    now, nonce = clock.now(), secrets.token_urlsafe(32)
    ApprovalNonce.objects.filter(made_at__lt=now - KEPT).delete()
    ApprovalNonce.objects.create(nonce=nonce, person=person, made_at=now)
    return nonce


def approval_challenge(
    request: ApprovalRequest, nonce: str, *, verdict: ReviewVerdict, edit: Edit | None, response: Any = None
) -> bytes:
    """Return the 32 bytes that a passkey signs for a decision on the request as it is now, before the edit."""
    edited = canonical_text([edit.text, edit.defaults, edit.omitted]) if edit is not None else ""
    number, answer = str(request.round_number), canonical_text(response)
    return bytes.fromhex(digest(DOMAIN, nonce, request.public_id, number, request.digest, edited, str(verdict), answer))


def use_signature(signature: PasskeySignature | None, challenge: bytes, by: User) -> str:
    """Use the nonce up and return the signature as JSON, to be kept with the review. Raises NotAllowed."""
    if signature is None:
        raise NotAllowed(SIGNATURE_REQUIRED)
    now = clock.now()
    usable = ApprovalNonce.objects.filter(nonce=signature.nonce, person=by, used_at=None)
    if not usable.filter(made_at__gt=now - NONCE_LIFETIME).update(used_at=now):
        raise NotAllowed(SIGNATURE_REFUSED)
    found = signature_of(by, challenge, signature.credential)
    if found is None:
        raise NotAllowed(SIGNATURE_REFUSED)
    return json.dumps({"nonce": signature.nonce, **found})
