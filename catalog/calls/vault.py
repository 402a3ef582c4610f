"""Encrypted store for the secrets of calls, which are deleted when the call ends.

Secrets belong to a plan's step, so that a retry finds them. A ciphertext moved to another place is refused.
"""

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db.models import Q
from pydantic_core import to_json

from catalog.core import clock
from catalog.core.canonical_json import canonical_text, digest
from catalog.definitions.tool import Tool
from catalog.errors import ParameterError, ToolError
from catalog.models import Call, CallSecret
from catalog.secrets.placeholders import (
    RedactedArguments,
    Secret,
    find_macs,
    find_placeholders,
    holds_secret,
    redact_secrets,
    restore_secrets,
)
from catalog.signals import Fact


class Keyring:
    """Fernet for encrypting values, and HMAC-SHA-256 under a key derived from each Fernet key for comparing them."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._mac_keys = [hashlib.sha256(b"toolgate secrets: mac\0" + key.encode()).digest() for key in keys]

    def mac(self, path: str, value: Any) -> str:
        return _mac(self._mac_keys[0], path, value)

    def macs(self, path: str, value: Any) -> list[str]:
        return [_mac(key, path, value) for key in self._mac_keys]

    def is_mac(self, mac: str, path: str, value: Any) -> bool:
        return any(hmac.compare_digest(mac, _mac(key, path, value)) for key in self._mac_keys)

    def fingerprint(self, text: str) -> str:
        """Return a keyed digest by which texts with secrets can be compared, but not guessed without the key."""
        return self.fingerprints(text)[0]

    def fingerprints(self, text: str) -> list[str]:
        """Return the digests of `fingerprint` under all keys, that of the newest key first."""
        return [hmac.new(key, b"text\0" + text.encode(), hashlib.sha256).hexdigest() for key in self._mac_keys]

    def is_fingerprint(self, fingerprint: str, text: str) -> bool:
        """Return True if this is the digest of the text under any of the keys."""
        return any(hmac.compare_digest(fingerprint, each) for each in self.fingerprints(text))

    def encrypt(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def decrypt(self, ciphertext: str) -> str:
        """Decrypt text that was encrypted with any of the keys. Raises cryptography.fernet.InvalidToken."""
        return self._fernet.decrypt(ciphertext.encode()).decode()


def _mac(key: bytes, path: str, value: Any) -> str:
    return hmac.new(key, digest(path, canonical_text(value)).encode(), hashlib.sha256).hexdigest()


def keyring() -> Keyring:
    return _keyring(tuple(settings.TOOLGATE_SECRET_KEYS))


@lru_cache(maxsize=4)
def _keyring(keys: tuple[str, ...]) -> Keyring:
    return Keyring(keys)


GONE_MESSAGE = "The secret '{name}' was deleted when its call or plan ended. Make a new request that contains it."
MOVED_MESSAGE = "A secret can't be moved to another field. Leave its placeholder where it was, or enter the value here."
OBSCURED_MESSAGE = (
    "A reference would place a secret inside other text, where it can't be recognised. "
    "Use only the reference, or separate it with spaces."
)
MIN_SEARCHED_CHARACTERS = 8
"""Minimum characters of a secret searched for in resolved references: shorter ones match by chance."""


class SecretGone(ToolError):
    """A call needs a secret that has been deleted, or that no current key can decrypt."""

    kind = "secret_gone"


@dataclass(frozen=True, slots=True)
class SecretScope:
    """The owner of secrets: a plan, or one of its steps."""

    plan_ref: str
    step_ref: str = ""


def redact_arguments(tool: Tool[Any, Any] | None, arguments: Any, *, is_plan: bool = False) -> RedactedArguments:
    """Replace the secrets in checked arguments by placeholders with HMACs made with this installation's keys."""
    places = tool.secret_locations if tool is not None else None
    return redact_secrets(places, arguments, lambda path, value: keyring().mac(path, value), is_plan=is_plan)


def store_secrets(scope: SecretScope, secrets: Iterable[Secret]) -> None:
    """Store secrets for a step, in the caller's transaction; existing ones are left unchanged."""
    keys, now = keyring(), clock.now()
    CallSecret.objects.bulk_create(
        [
            CallSecret(
                plan_ref=scope.plan_ref,
                step_ref=scope.step_ref,
                mac=secret.mac,
                ciphertext=keys.encrypt(json.dumps([secret.path, secret.value])),
                created_at=now,
            )
            for secret in secrets
        ],
        ignore_conflicts=True,
    )


def load_available(text: str, plan_ref: str) -> Any:
    """Return stored JSON text with its original secrets; deleted secrets remain `{"$secret": name}`."""
    value = json.loads(text)
    return restore_secrets(value, _StoredSecrets(find_macs(text), plan_ref)) if holds_secret(text) else value


def load_complete(text: str, plan_ref: str) -> Any:
    """Return stored JSON text with its original secrets. Raises SecretGone if one is no longer stored."""
    value = load_available(text, plan_ref)
    if holds_secret(text):
        for _, name in find_placeholders(value):
            raise SecretGone(GONE_MESSAGE.format(name=name))
    return value


def secret_values_in(scope: SecretScope) -> dict[str, Any]:
    """Return the secrets of one scope by path, without those that no current key can decrypt."""
    keys, found = keyring(), dict[str, Any]()
    rows = CallSecret.objects.filter(plan_ref=scope.plan_ref, step_ref=scope.step_ref)
    for mac, ciphertext in rows.values_list("mac", "ciphertext"):
        with suppress(InvalidToken):
            path, value = json.loads(keys.decrypt(ciphertext))
            if keys.is_mac(mac, path, value):
                found[path] = value
    return found


def variants_for_rotated_keys(text: str, secrets: Iterable[Secret]) -> list[str]:
    """Return redacted text as it is, and with the HMACs of its placeholders as each of the keys would make them.

    Compare all variants with stored text, which may have been redacted with an older key.
    """
    keys = keyring()
    named = [(secret.mac, keys.macs(secret.path, secret.value)) for secret in secrets]
    texts = {text: None}
    for place in range(len(named[0][1]) if named else 0):
        other = text
        for mac, macs in named:
            other = other.replace(mac, macs[place])
        texts[other] = None
    return list(texts)


def load_call_secrets(call: Call) -> list[Secret]:
    if not holds_secret(call.arguments):
        return []
    kept, found = _StoredSecrets(find_macs(call.arguments), call.plan_ref), list[Secret]()

    def note(name: str, mac: str, path: str) -> Any:
        found.append(Secret(name, *kept.found(name, mac), mac))
        raise KeyError(name)

    restore_secrets(json.loads(call.arguments), note)
    return found


def load_call_arguments(call: Call) -> Any:
    """Return the arguments a stored call runs with. Raises SecretGone."""
    return load_complete(call.arguments, call.plan_ref)


@dataclass(frozen=True, slots=True)
class RestoredArguments:
    """Arguments edited by a person, in which every secret that was left in its place is restored.

    `put_back` counts the restored secrets by path and canonical value; `moved` holds the paths to which the person
    moved the placeholder of a secret.
    """

    arguments: Any = field(repr=False)
    put_back: "Counter[tuple[str, str]]" = field(default_factory=Counter, repr=False)
    moved: tuple[str, ...] = ()

    def in_place(self) -> Any:
        """Return the arguments. Raises ParameterError (`secret_moved`) if the person moved a secret."""
        _raise_if_moved(self.moved, MOVED_MESSAGE)
        return self.arguments

    def check(self, redacted: RedactedArguments) -> None:
        """Raise ParameterError (`secret_moved`) if a restored secret would be stored in clear."""
        _raise_if_moved(self.unredacted_paths(redacted), MOVED_MESSAGE)

    def check_references(self, redacted: RedactedArguments) -> None:
        """Raise ParameterError (`secret_moved`) if a reference put a secret into text where redaction missed it."""
        obscured = [
            where
            for where, text in self.put_back
            if len(text) - 2 >= MIN_SEARCHED_CHARACTERS and text[1:-1] in redacted.text
        ]
        _raise_if_moved(sorted(set(obscured)), OBSCURED_MESSAGE)

    def unredacted_paths(self, redacted: RedactedArguments) -> list[str]:
        """Return the paths of restored secrets that redaction has not found again.

        Values are not searched for, because the result would tell an attacker who guesses values which guess is right.
        """
        again = {
            (secret.path, canonical_text(secret.value)): redacted.text.count(secret.mac) for secret in redacted.secrets
        }
        return sorted({where[0] for where, times in self.put_back.items() if again.get(where, 0) < times})


def restore_edited_arguments(arguments: Any, before: str, plan_ref: str) -> RestoredArguments:
    """Return edited arguments, with secrets restored where the editor left their `{"$secret": name}`.

    `before` is the stored text that was edited. A secret is restored only where it was redacted. Placeholders with any
    other name stay unchanged and are refused later.
    """
    names = _macs_by_name(json.loads(before)) if holds_secret(before) else {}
    kept = _StoredSecrets(set(names.values()), plan_ref) if names else None
    put_back, moved = Counter[tuple[str, str]](), set[str]()

    def known(name: str, mac: str, path: str) -> Any:
        if kept is None or mac:  # HMACs are never displayed, so no client can send one
            raise KeyError(name)
        stood, value = kept.found(name, names[name])
        if stood != path:
            moved.add(path)
            raise KeyError(name)
        put_back[path, canonical_text(value)] += 1
        return value

    return RestoredArguments(restore_secrets(arguments, known), put_back, tuple(sorted(moved)))


def load_references(value: Any, plan_ref: str) -> RestoredArguments:
    """Return a JSON value made from a plan's memory, with the plan's secrets in it restored."""
    text, put_back = to_json(value).decode(), Counter[tuple[str, str]]()
    if not holds_secret(text):
        return RestoredArguments(value)
    kept = _StoredSecrets(find_macs(text), plan_ref)

    def known(name: str, mac: str, path: str) -> Any:
        found = kept(name, mac, path)
        put_back[path, canonical_text(found)] += 1
        return found

    return RestoredArguments(restore_secrets(value, known), put_back)


def _raise_if_moved(paths: Iterable[str], message: str) -> None:
    errors = [{"path": path, "code": "secret_moved", "message": message} for path in paths]
    if errors:
        raise ParameterError(message, {"field": errors[0]["path"] or None, "errors": errors})


def _macs_by_name(value: Any) -> dict[str, str]:
    names: dict[str, str] = {}

    def note(name: str, mac: str, path: str) -> Any:
        names[name] = mac
        raise KeyError(name)

    restore_secrets(value, note)
    return names


class _StoredSecrets:
    """The values of a plan's secrets by their HMACs, read in one query; each value is verified by its HMAC."""

    def __init__(self, macs: set[str], plan_ref: str) -> None:
        self._keys = keyring()
        rows = CallSecret.objects.filter(plan_ref=plan_ref, mac__in=macs)
        self._rows: Mapping[str, str] = dict(rows.values_list("mac", "ciphertext"))

    def __call__(self, name: str, mac: str, path: str) -> Any:
        """Return a secret's value at any `path`, because references may move secrets. Raises KeyError like `found`."""
        return self.found(name, mac)[1]

    def found(self, name: str, mac: str) -> tuple[str, Any]:
        """Return the path from which the secret was redacted, and its value.

        Raises KeyError if the secret is deleted, cannot be decrypted, or fails verification.
        """
        try:
            path, value = json.loads(self._keys.decrypt(self._rows[mac]))
        except InvalidToken:
            raise KeyError(name) from None
        if not self._keys.is_mac(mac, path, value):
            raise KeyError(name)
        return path, value


CALL_ENDING_FACTS = frozenset(
    {"call.refused", "call.responded", "approval.withdrawn", "approval.expired", "approval.revoked"}
)


def delete_secrets_of_ended_call(sender: object, *, fact: Fact, **kwargs: object) -> None:
    """Delete the secrets of a call that was refused, answered, withdrawn or settled, unless it is requested again."""
    settled = fact.kind == "call.settled" and fact.data.get("verdict") == "happened"
    if fact.call is not None and (fact.kind in CALL_ENDING_FACTS or settled) and not fact.data.get("asks_again"):
        delete_call_secrets(fact.call)


def delete_call_secrets(call: Call) -> None:
    """Delete the secrets of a call that ends, in the caller's transaction."""
    if holds_secret(call.arguments):
        delete_secrets(SecretScope(call.plan_ref, call.step_ref))


def delete_secrets(scope: SecretScope) -> None:
    step = Q(step_ref=scope.step_ref) if scope.step_ref else Q()
    CallSecret.objects.filter(step, plan_ref=scope.plan_ref).delete()
