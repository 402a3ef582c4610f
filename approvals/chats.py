"""Chats. Each form of address is known to its last character, so that none names a host, a file or a second address.

ntfy is posted to as webhooks are: its host is judged and redirects are not followed. The others go through the extra
`notify` (apprise), which here knows services with hosts of their own only; without it this says so.
"""

import base64
import json
import re
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from catalog.core import egress

PLAIN = r"[A-Za-z0-9._~:/@#+=-]+"
"""No question mark: apprise's options name files and hosts. No comma: it would begin another address."""
APPRISE = {
    "slack": re.compile(rf"slack://{PLAIN}"),
    "discord": re.compile(rf"discord://{PLAIN}"),
    "tgram": re.compile(rf"tgram://{PLAIN}"),
    "workflows": re.compile(
        r"workflows://([a-z0-9-]+\.)+(logic\.azure|api\.powerplatform)\.com(:443)?"
        r"/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+/?(\?pa=yes)?"
    ),
}
"""Of what apprise knows those that post to hosts of their service: others run programs, write files, go anywhere."""
NTFY = re.compile(r"ntfys?://(([^@/?#\s,]+@)?[A-Za-z0-9.:\[\]-]+/)?[A-Za-z0-9_-]{1,64}/?")
NTFY_CLOUD = "ntfy.sh"
SCHEMES = {*APPRISE, "ntfy", "ntfys"}
MISSING = "Chats need the extra notify: install apprise beside Toolgate (pip install 'toolgate[notify]')."
TIMEOUT_SECONDS = 10.0


def is_installed() -> bool:
    """Say whether chats that go through apprise can be sent to here."""
    return find_spec("apprise") is not None


def check(address: str) -> str:
    """Return the scheme of an address that may be sent to; resolves nothing. Raises `catalog.core.egress.NotSent`."""
    scheme = address.partition("://")[0]
    form = NTFY if scheme in ("ntfy", "ntfys") else APPRISE.get(scheme)
    if form is None:
        raise egress.NotSent(f"Chats are {', '.join(f'{each}://' for each in sorted(SCHEMES))}.", again=False)
    if form is not NTFY and not is_installed():
        raise egress.NotSent(MISSING, again=False)
    if not form.fullmatch(address):
        message = f"This is no {scheme}:// address as they are taken here: without options, and to its service's hosts."
        raise egress.NotSent(message, again=False)
    if form is NTFY:
        egress.check_url(_ntfy_place(address)[0])
    return scheme


def send(address: str, subject: str, body: str) -> None:
    """Post a message. Raises `catalog.core.egress.NotSent`; its words hold nothing of the address but scheme and
    host.
    """
    if check(address) in APPRISE:
        _through_apprise(address, subject, body)
    else:
        _to_ntfy(address, subject, body)


def _ntfy_place(address: str) -> tuple[str, str, str]:
    """Return the server's URL, the topic, and who sends: a token, `user:password`, or nobody."""
    scheme, _, rest = address.partition("://")
    place, _, topic = rest.rstrip("/").rpartition("/")
    who, _, host = place.rpartition("@")
    protocol = "http" if scheme == "ntfy" and host else "https"
    return f"{protocol}://{host or NTFY_CLOUD}/", topic, unquote(who)


def _to_ntfy(address: str, subject: str, body: str) -> None:
    url, topic, who = _ntfy_place(address)
    headers = {"Content-Type": "application/json"}
    if who:
        basic = base64.b64encode(who.encode()).decode()
        headers["Authorization"] = f"Basic {basic}" if ":" in who else f"Bearer {who}"
    message = json.dumps({"topic": topic, "title": subject, "message": body}).encode()
    egress.post(url, message, headers, seconds=TIMEOUT_SECONDS)


def _through_apprise(address: str, subject: str, body: str) -> None:
    apprise = import_module("apprise")
    storage = apprise.PersistentStoreMode.MEMORY
    asset = apprise.AppriseAsset(storage_mode=storage, http_redirects=False)
    service = apprise.Apprise.instantiate(address, asset=asset)  # one address; `add` would take a list of them
    scheme = urlsplit(address).scheme
    if service is None:
        raise egress.NotSent(f"This {scheme}:// address cannot be read.", again=False)
    sender = apprise.Apprise(asset=asset)
    sender.add(service)
    if not sender.notify(title=subject, body=body, body_format=apprise.NotifyFormat.TEXT):
        raise egress.NotSent(f"{scheme} did not say that it took it.", unsure=True)  # apprise tells no more
