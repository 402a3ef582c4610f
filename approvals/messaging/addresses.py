"""Notification addresses for mail, signed webhooks and chats, stored encrypted and displayed without secrets."""

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import Error, register
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from approvals.messaging import senders
from approvals.messaging.web_push import Subscription
from catalog.calls.vault import keyring
from catalog.core import egress
from catalog.errors import ParameterError, field_error

MAIL, WEBHOOK, CHAT, PUSH = "mail", "webhook", "chat", "push"
MAX_ADDRESS_LENGTH = 1000
ADDRESS_FORMATS = (
    "Enter a mail address, an https:// URL for signed webhooks, or a chat address such as slack://… or ntfys://…"
)


@dataclass(frozen=True, slots=True)
class Address:
    """One notification address: its channel and full text, which may contain a token.

    The text of a browser is its subscription as JSON.
    """

    channel: str
    text: str

    @property
    def shown(self) -> str:
        """The address without secrets: mail addresses in full, all others as scheme and host."""
        if self.channel == MAIL:
            return self.text[:255]
        if self.channel == PUSH:
            return f"push://{urlsplit(Subscription.of_text(self.text).endpoint).hostname}/…"[:255]
        parts = urlsplit(self.text)
        host = f"{parts.hostname or ''}/" if self.channel == WEBHOOK else ""
        return f"{parts.scheme}://{host}…"[:255]

    @property
    def key(self) -> str:
        """Hash that identifies the address without revealing it."""
        return hashlib.sha256(keyring().fingerprint(self.text).encode()).hexdigest()

    def encrypted(self) -> str:
        return keyring().encrypt(self.text)

    def kept(self) -> dict[str, str]:
        """Return the address as an encrypted JSON object for storage."""
        return {"channel": self.channel, "ciphertext": self.encrypted(), "shown": self.shown}


def decrypt_address(channel: str, ciphertext: str) -> Address:
    """Return a stored address. Raises cryptography.fernet.InvalidToken if the encryption key is gone."""
    return Address(channel, keyring().decrypt(ciphertext))


def read_address(text: str) -> Address:
    """Parse an address without resolving its host. Raises ParameterError, which does not repeat the address."""
    text = text.strip()
    if not text or len(text) > MAX_ADDRESS_LENGTH or not text.isprintable() or re.search(r"\s", text):
        raise _address_error(ADDRESS_FORMATS)
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if scheme in egress.DEFAULT_PORTS:
        try:
            egress.check_url(text)
        except egress.RequestNotSent as error:
            raise _address_error(str(error)) from None
        return Address(WEBHOOK, text)
    if scheme:
        text = scheme + text[len(scheme) :]
        try:
            senders.check_chat(text)
        except egress.RequestNotSent as error:
            raise _address_error(f"{error} {ADDRESS_FORMATS}") from None
        return Address(CHAT, text)
    text = text.removeprefix("mailto:")
    try:
        validate_email(text)
    except ValidationError:
        raise _address_error(ADDRESS_FORMATS) from None
    return Address(MAIL, text)


def _address_error(message: str) -> ParameterError:
    return field_error("address", "invalid", message)


@register()
def check_installation_addresses(app_configs: object, **kwargs: object) -> list[Error]:
    """Report unusable addresses in the settings by position; their text is left out, since it may contain a token."""
    problems = []
    for number, text in enumerate(settings.TOOLGATE_NOTIFY_URLS, start=1):
        try:
            read_address(text)
        except ParameterError as error:
            problems.append(Error(f"TOOLGATE_NOTIFY_URLS, number {number}: {error.message}", id="toolgate.E003"))
    return problems
