"""Senders of webhooks and chat messages.

A webhook is one POST of JSON with `Toolgate-Signature: t=UNIX_SECONDS,v1=HEX`, where HEX is the HMAC-SHA256 of
`UNIX_SECONDS.BODY` under TOOLGATE_WEBHOOK_KEY. Chat addresses must match a strict pattern in full, so that none can
name another host, a file or a second address. Only ntfy has a host of the user's choice: it is checked, and redirects
are not followed.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

from django.conf import settings

from catalog.core import clock, egress
from catalog.core.canonical_json import canonical_text

PLAIN = r"[A-Za-z0-9._~:/@#+=-]+"
"""No question mark, since apprise options can name files and hosts; no comma, which separates addresses."""
APPRISE_PATTERNS = {
    "slack": re.compile(rf"slack://{PLAIN}"),
    "discord": re.compile(rf"discord://{PLAIN}"),
    "tgram": re.compile(rf"tgram://{PLAIN}"),
    "workflows": re.compile(
        r"workflows://([a-z0-9-]+\.)+(logic\.azure|api\.powerplatform)\.com(:443)?"
        r"/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+/?(\?pa=yes)?"
    ),
}
"""apprise services that post to their own hosts; others can run programs, write files or call any host."""
NTFY_PATTERN = re.compile(r"ntfys?://(([^@/?#\s,]+@)?[A-Za-z0-9.:\[\]-]+/)?[A-Za-z0-9_-]{1,64}/?")
NTFY_CLOUD = "ntfy.sh"
SCHEMES = {*APPRISE_PATTERNS, "ntfy", "ntfys"}
APPRISE_MISSING = "Chat addresses need the extra `notify`: run pip install 'toolgate[notify]'."
TIMEOUT_SECONDS = 10.0


def is_apprise_installed() -> bool:
    return find_spec("apprise") is not None


def check_chat(address: str) -> str:
    """Return the scheme of a chat address without resolving its host. Raises RequestNotSent for an invalid address."""
    scheme = address.partition("://")[0]
    form = NTFY_PATTERN if scheme in ("ntfy", "ntfys") else APPRISE_PATTERNS.get(scheme)
    if form is None:
        known = ", ".join(f"{each}://" for each in sorted(SCHEMES))
        raise egress.RequestNotSent(f"Unknown kind of chat address. Known are {known}.", again=False)
    if form is not NTFY_PATTERN and not is_apprise_installed():
        raise egress.RequestNotSent(APPRISE_MISSING, again=False)
    if not form.fullmatch(address):
        message = f"Invalid {scheme}:// address. It must have no options and use the service's own host."
        raise egress.RequestNotSent(message, again=False)
    if form is NTFY_PATTERN:
        egress.check_url(_parse_ntfy_address(address)[0])
    return scheme


def send_chat(address: str, subject: str, body: str) -> None:
    """Post a message. Raises `catalog.core.egress.RequestNotSent`, whose message contains only scheme and host."""
    scheme = check_chat(address)
    if scheme not in APPRISE_PATTERNS:
        url, topic, who = _parse_ntfy_address(address)
        headers = {"Content-Type": "application/json"}
        if who:
            basic = base64.b64encode(who.encode()).decode()
            headers["Authorization"] = f"Basic {basic}" if ":" in who else f"Bearer {who}"
        document = json.dumps({"topic": topic, "title": subject, "message": body}).encode()
        egress.post_request(url, document, headers, seconds=TIMEOUT_SECONDS)
        return
    apprise = import_module("apprise")
    asset = apprise.AppriseAsset(storage_mode=apprise.PersistentStoreMode.MEMORY, http_redirects=False)
    service = apprise.Apprise.instantiate(address, asset=asset)  # `add` would accept a list of addresses
    if service is None:
        raise egress.RequestNotSent(f"Invalid {scheme}:// address.", again=False)
    sender = apprise.Apprise(asset=asset)
    sender.add(service)
    if not sender.notify(title=subject, body=body, body_format=apprise.NotifyFormat.TEXT):
        message = f"{scheme} did not confirm the message."  # apprise returns no details
        raise egress.RequestNotSent(message, unsure=True)


def _parse_ntfy_address(address: str) -> tuple[str, str, str]:
    """Return server URL, topic and credentials: a token, `user:password`, or an empty string."""
    scheme, _, rest = address.partition("://")
    place, _, topic = rest.rstrip("/").rpartition("/")
    who, _, host = place.rpartition("@")
    protocol = "http" if scheme == "ntfy" and host else "https"
    return f"{protocol}://{host or NTFY_CLOUD}/", topic, unquote(who)


SIGNATURE_HEADER = "Toolgate-Signature"


def post_webhook(url: str, kind: str, document: Mapping[str, Any], *, identity: str = "") -> None:
    """Post a JSON document of type `kind`; retries send the same `identity`, which receivers use to deduplicate.

    Raises `catalog.core.egress.RequestNotSent`.
    """
    body = canonical_text({"type": kind, **document}).encode()
    seconds = str(int(clock.now().timestamp()))
    headers = {
        "Content-Type": "application/json",
        SIGNATURE_HEADER: f"t={seconds},v1={webhook_signature(seconds, body)}",
    }
    if identity:
        headers["Idempotency-Key"] = identity
    egress.post_request(url, body, headers, seconds=TIMEOUT_SECONDS)


def webhook_signature(seconds: str, body: bytes) -> str:
    """Return the signature of a body sent at this Unix time."""
    key = settings.TOOLGATE_WEBHOOK_KEY.encode()
    key = key or hmac.digest(settings.SECRET_KEY.encode(), b"toolgate webhooks", hashlib.sha256)
    return hmac.new(key, f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
