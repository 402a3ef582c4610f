"""Web push: a message to a browser through its vendor's push service, which cannot read it (RFC 8291).

The library encrypts and signs; Toolgate's own client sends, since the address of a subscription is what a browser,
or anyone who claims to be one, named.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from email.utils import parseaddr
from functools import lru_cache
from io import BytesIO
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.conf import settings
from webpush import WebPush, WebPushSubscription

from catalog.core import egress
from catalog.errors import field_error

MAX_ENDPOINT_LENGTH = 1000
PUBLIC_KEY_BYTES = 65
AUTH_BYTES = 16
KEPT_SECONDS = 12 * 3600
"""Seconds for which a push service keeps a message for a device that is off."""
TIMEOUT_SECONDS = 10.0
TOPIC_LENGTH = 32
GONE_STATUSES = frozenset({404, 410})
"""Answers of a push service to a subscription that has ended."""


class SubscriptionEnded(Exception):
    """The push service does not know the subscription any more: the browser ended it, or was removed."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as a browser names it: address of its push service, public key and secret of the browser."""

    endpoint: str
    p256dh: str
    auth: str

    def text(self) -> str:
        """Return the subscription as JSON, for storage."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of_text(cls, text: str) -> "Subscription":
        return cls(**json.loads(text))


def read_subscription(fields: Mapping[str, str]) -> Subscription:
    """Check a subscription without resolving its host. Raises ParameterError at `endpoint`, `p256dh` or `auth`."""
    endpoint = fields.get("endpoint", "")
    try:
        parts = egress.check_url(endpoint)
    except egress.RequestNotSent as error:
        raise field_error("endpoint", "invalid", str(error)) from None
    # The signature names scheme and host alone, so that a port of its own would make it invalid.
    if parts.scheme != "https" or parts.port not in (None, 443) or len(endpoint) > MAX_ENDPOINT_LENGTH:
        message = f"The address must be https:// on the usual port, with at most {MAX_ENDPOINT_LENGTH} characters."
        raise field_error("endpoint", "invalid", message)
    public_key, secret = (_decoded(fields, name) for name in ("p256dh", "auth"))
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public_key)
    except ValueError:
        public_key = b""
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise field_error("p256dh", "invalid", "The key must be an uncompressed point of the curve P-256.")
    if len(secret) != AUTH_BYTES:
        raise field_error("auth", "invalid", f"The secret must have {AUTH_BYTES} bytes.")
    return Subscription(endpoint, *(_encoded(each) for each in (public_key, secret)))


def _decoded(fields: Mapping[str, str], name: str) -> bytes:
    text = fields.get(name, "")[:200]
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def private_key(text: str) -> ec.EllipticCurvePrivateKey:
    """Return the key in TOOLGATE_VAPID_KEY: 32 bytes in URL-safe base64. Raises ValueError."""
    number = int.from_bytes(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    return ec.derive_private_key(number, ec.SECP256R1())


def is_configured() -> bool:
    return bool(settings.TOOLGATE_VAPID_KEY)


def application_server_key() -> str:
    """Return the public key that browsers subscribe with."""
    public = private_key(settings.TOOLGATE_VAPID_KEY).public_key()
    return _encoded(public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))


@lru_cache(maxsize=2)
def _signer(key: str, contact: str) -> WebPush:
    private = private_key(key)
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return WebPush(private_key=pem, public_key=BytesIO(public), subscriber=contact, ttl=KEPT_SECONDS)


def _contact() -> str:
    """Return the mail address that push services may write to; some refuse one of localhost."""
    if settings.TOOLGATE_SENDS_MAIL:
        return parseaddr(settings.DEFAULT_FROM_EMAIL)[1]
    return f"toolgate@{urlsplit(settings.TOOLGATE_URL).hostname}"


def send_push(subscription: Subscription, document: Mapping[str, str], *, topic: str) -> None:
    """Send a message; a later one with the same `topic` replaces it while the device is off.

    Raises SubscriptionEnded and `catalog.core.egress.RequestNotSent`.
    """
    keys = {"p256dh": subscription.p256dh, "auth": subscription.auth}
    to = WebPushSubscription.model_validate({"endpoint": subscription.endpoint, "keys": keys})
    message = _signer(settings.TOOLGATE_VAPID_KEY, _contact()).get(dict(document), to)
    headers = {**message.headers, "Content-Type": "application/octet-stream", "Urgency": "high"}
    headers["Topic"] = topic[:TOPIC_LENGTH]
    try:
        egress.post_request(subscription.endpoint, message.encrypted, headers, seconds=TIMEOUT_SECONDS)
    except egress.RequestNotSent as error:
        if error.status in GONE_STATUSES:
            raise SubscriptionEnded from None
        raise
