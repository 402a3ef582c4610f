"""The keys that secrets are kept and told apart with, from `TOOLGATE_SECRET_KEYS`: the first is used, all are known."""

import hashlib
import hmac
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings

from catalog.core.canonical_json import canonical_text, digest


class Keyring:
    """Fernet for keeping values, and HMAC-SHA-256 under a key derived from each for telling them apart."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._mac_keys = [hashlib.sha256(b"toolgate secrets: mac\0" + key.encode()).digest() for key in keys]

    def mac(self, path: str, value: Any) -> str:
        """Return the HMAC (hex) that stands for this value at this path."""
        return _mac(self._mac_keys[0], path, value)

    def macs(self, path: str, value: Any) -> list[str]:
        """Return the HMACs that stood for this value at this path under each key, the one in use first."""
        return [_mac(key, path, value) for key in self._mac_keys]

    def is_mac(self, mac: str, path: str, value: Any) -> bool:
        """Say whether the HMAC is that of the value at the path, under any of the keys."""
        return any(hmac.compare_digest(mac, _mac(key, path, value)) for key in self._mac_keys)

    def fingerprint(self, text: str) -> str:
        """Return what tells texts apart that may hold secrets, and cannot be guessed from without the key."""
        return hmac.new(self._mac_keys[0], b"text\0" + text.encode(), hashlib.sha256).hexdigest()

    def encrypt(self, text: str) -> str:
        """Return the text as Fernet ciphertext under the first key."""
        return self._fernet.encrypt(text.encode()).decode()

    def decrypt(self, ciphertext: str) -> str:
        """Return what was encrypted under any of the keys. Raises cryptography.fernet.InvalidToken."""
        return self._fernet.decrypt(ciphertext.encode()).decode()


def _mac(key: bytes, path: str, value: Any) -> str:
    return hmac.new(key, digest(path, canonical_text(value)).encode(), hashlib.sha256).hexdigest()


def keyring() -> Keyring:
    """Return the keys of this installation."""
    return _keyring(tuple(settings.TOOLGATE_SECRET_KEYS))


@lru_cache(maxsize=4)
def _keyring(keys: tuple[str, ...]) -> Keyring:
    return Keyring(keys)
