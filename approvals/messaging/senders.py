"""Senders of webhooks and chat messages.

A webhook is one POST of JSON with `Toolgate-Signature: t=UNIX_SECONDS,v1=HEX`, where HEX is the HMAC-SHA256 of
`UNIX_SECONDS.BODY` under TOOLGATE_WEBHOOK_KEY. Receivers compare both, and refuse messages that are older than a few
minutes.

Each form of chat address is checked to its last character, so that none can name a host, a file or a second address.
ntfy is sent to like a webhook: its host is checked and redirects are not followed. The others need the extra `notify`
(apprise), of which only services with hosts of their own are used.
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
from urllib.parse import unquote, urlsplit

from django.conf import settings

from catalog.core import clock, egress
from catalog.core.canonical_json import canonical_text

PLAIN = r"[A-Za-z0-9._~:/@#+=-]+"
"""No question mark: apprise's options name files and hosts. No comma: it would begin another address."""
APPRISE_PATTERNS = {
    "slack": re.compile(rf"slack://{PLAIN}"),
    "discord": re.compile(rf"discord://{PLAIN}"),
    "tgram": re.compile(rf"tgram://{PLAIN}"),
    "workflows": re.compile(
        r"workflows://([a-z0-9-]+\.)+(logic\.azure|api\.powerplatform)\.com(:443)?"
        r"/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+/?(\?pa=yes)?"
    ),
}
"""Of what apprise knows those that post to hosts of their service: others run programs, write files, go anywhere."""
NTFY_PATTERN = re.compile(r"ntfys?://(([^@/?#\s,]+@)?[A-Za-z0-9.:\[\]-]+/)?[A-Za-z0-9_-]{1,64}/?")
NTFY_CLOUD = "ntfy.sh"
SCHEMES = {*APPRISE_PATTERNS, "ntfy", "ntfys"}
APPRISE_MISSING = "Chats need the extra notify: install apprise beside Toolgate (pip install 'toolgate[notify]')."
TIMEOUT_SECONDS = 10.0


def is_apprise_installed() -> bool:
    """Say whether chats that go through apprise can be sent to here."""
    return find_spec("apprise") is not None


def check_chat(address: str) -> str:
    """Return the scheme of an address that may be sent to; resolves nothing. Raises RequestNotSent."""
    scheme = address.partition("://")[0]
    form = NTFY_PATTERN if scheme in ("ntfy", "ntfys") else APPRISE_PATTERNS.get(scheme)
    if form is None:
        raise egress.RequestNotSent(f"Chats are {', '.join(f'{each}://' for each in sorted(SCHEMES))}.", again=False)
    if form is not NTFY_PATTERN and not is_apprise_installed():
        raise egress.RequestNotSent(APPRISE_MISSING, again=False)
    if not form.fullmatch(address):
        message = f"This is no {scheme}:// address as they are taken here: without options, and to its service's hosts."
        raise egress.RequestNotSent(message, again=False)
    if form is NTFY_PATTERN:
        egress.check_url(_parse_ntfy_address(address)[0])
    return scheme


def send_chat(address: str, subject: str, body: str) -> None:
    """Post a message. Raises `catalog.core.egress.RequestNotSent`; its words hold nothing of the address but scheme and
    host.
    """
    if check_chat(address) in APPRISE_PATTERNS:
        _send_apprise(address, subject, body)
    else:
        _send_ntfy(address, subject, body)


def _parse_ntfy_address(address: str) -> tuple[str, str, str]:
    """Return the server's URL, the topic, and who sends: a token, `user:password`, or nobody."""
    scheme, _, rest = address.partition("://")
    place, _, topic = rest.rstrip("/").rpartition("/")
    who, _, host = place.rpartition("@")
    protocol = "http" if scheme == "ntfy" and host else "https"
    return f"{protocol}://{host or NTFY_CLOUD}/", topic, unquote(who)


def _send_ntfy(address: str, subject: str, body: str) -> None:
    url, topic, who = _parse_ntfy_address(address)
    headers = {"Content-Type": "application/json"}
    if who:
        basic = base64.b64encode(who.encode()).decode()
        headers["Authorization"] = f"Basic {basic}" if ":" in who else f"Bearer {who}"
    message = json.dumps({"topic": topic, "title": subject, "message": body}).encode()
    egress.post_request(url, message, headers, seconds=TIMEOUT_SECONDS)


def _send_apprise(address: str, subject: str, body: str) -> None:
    apprise = import_module("apprise")
    storage = apprise.PersistentStoreMode.MEMORY
    asset = apprise.AppriseAsset(storage_mode=storage, http_redirects=False)
    service = apprise.Apprise.instantiate(address, asset=asset)  # one address; `add` would take a list of them
    scheme = urlsplit(address).scheme
    if service is None:
        raise egress.RequestNotSent(f"This {scheme}:// address cannot be read.", again=False)
    sender = apprise.Apprise(asset=asset)
    sender.add(service)
    if not sender.notify(title=subject, body=body, body_format=apprise.NotifyFormat.TEXT):
        raise egress.RequestNotSent(f"{scheme} did not say that it took it.", unsure=True)  # apprise tells no more


SIGNATURE_HEADER = "Toolgate-Signature"


def post_webhook(url: str, kind: str, document: Mapping[str, Any], *, identity: str = "") -> None:
    """Send a document under `kind`; `identity` is the same for repeats. Raises `catalog.core.egress.RequestNotSent`."""
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
    """Return the MAC of a body sent at a time."""
    return hmac.new(_key(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()


def _key() -> bytes:
    """Return the key that receivers know; without one nobody can check the signature, and nobody can forge it."""
    own = settings.TOOLGATE_WEBHOOK_KEY.encode()
    return own or hmac.digest(settings.SECRET_KEY.encode(), b"toolgate webhooks", hashlib.sha256)
