"""Signed webhooks: one POST of JSON, with the time and a MAC that show who sent it and when.

`Toolgate-Signature: t=UNIX_SECONDS,v1=HEX`, where HEX is the HMAC-SHA256 of `UNIX_SECONDS.BODY` under
TOOLGATE_WEBHOOK_KEY. Whoever receives one compares both, and refuses what is older than a few minutes.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from catalog.core import clock, egress
from catalog.core.canonical_json import canonical_text

HEADER = "Toolgate-Signature"
TIMEOUT_SECONDS = 10.0


def post(url: str, kind: str, document: Mapping[str, Any], *, identity: str = "") -> None:
    """Send a document under `kind`; `identity` is the same for repeats. Raises `catalog.core.egress.NotSent`."""
    body = canonical_text({"type": kind, **document}).encode()
    seconds = str(int(clock.now().timestamp()))
    headers = {"Content-Type": "application/json", HEADER: f"t={seconds},v1={signature(seconds, body)}"}
    if identity:
        headers["Idempotency-Key"] = identity
    egress.post(url, body, headers, seconds=TIMEOUT_SECONDS)


def signature(seconds: str, body: bytes) -> str:
    """Return the MAC of a body sent at a time."""
    return hmac.new(_key(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()


def _key() -> bytes:
    """Return the key that receivers know; without one nobody can check the signature, and nobody can forge it."""
    own = settings.TOOLGATE_WEBHOOK_KEY.encode()
    return own or hmac.digest(settings.SECRET_KEY.encode(), b"toolgate webhooks", hashlib.sha256)
