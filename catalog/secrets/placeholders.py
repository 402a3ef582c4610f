"""Redaction of secrets in arguments: replacement by placeholders, and restoration.

A placeholder carries a MAC of its value, so that equal secrets can be recognised and changed ones detected.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.core.canonical_json import canonical_text
from catalog.core.json_paths import member_path
from catalog.errors import ParameterError
from catalog.schemas.resolver import Schema, child_schemas, index_references, schemas_in_place, subschemas
from catalog.secrets.detectors import PLACEHOLDER, find_secrets, may_hold_secret

_IN_PLACE_KEYWORDS = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas")

Schemas = Sequence[Schema]


class SecretLocations:
    """Places of secrets in one schema; `names` are properties whose values are secret at any depth."""

    def __init__(self, schema: Schema, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._targets = index_references(schema)
        self.top = self._applying([schema])
        self.any = bool(self._names) or any(is_marked_secret(each) for _, each in subschemas(schema))

    def for_property(self, schemas: Schemas, name: str) -> Schemas:
        return self._applying(_schemas_for_property(schemas, name))

    def for_item(self, schemas: Schemas, index: int) -> Schemas:
        return self._applying(_schemas_for_item(schemas, index))

    def is_secret(self, schemas: Schemas, name: str | None) -> bool:
        """Return whether a value to which `schemas` apply is secret; `name` is its key in an object."""
        return name in self._names or any(map(is_marked_secret, schemas))

    def _applying(self, schemas: Iterable[object]) -> Schemas:
        return schemas_in_place(schemas, self._targets, _IN_PLACE_KEYWORDS)


def is_marked_secret(schema: Schema) -> bool:
    return bool(schema.get("writeOnly") is True or schema.get("x-secret") or schema.get("format") == "password")


def _schemas_for_property(schemas: Schemas, name: str) -> Iterator[object]:
    for schema in schemas:
        # Patterns are not evaluated: a secret under a pattern counts as secret under every name.
        yield from child_schemas(schema, "patternProperties")
        named = schema.get("properties")
        if isinstance(named, dict) and name in named:
            yield named[name]
        else:
            yield from child_schemas(schema, "additionalProperties", "unevaluatedProperties")


def _schemas_for_item(schemas: Schemas, index: int) -> Iterator[object]:
    for schema in schemas:
        yield from child_schemas(schema, "contains")
        first = schema.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            yield first[index]
        else:
            yield from child_schemas(schema, "items", "unevaluatedItems")


PLACEHOLDER_KEY = "$secret"
MAX_SECRET_NAME = 64
MISSING_MESSAGE = "The secret here was deleted. Enter its value."

_UNSAFE_NAME_CHARACTERS = re.compile(r"[^\w.-]")
# Matches in JSON text at any level of escaping; the end may be cut off in truncated text.
_MAC_PATTERN = re.compile(r'(\$secret\\*": ?\\*"[\w.-]{1,80})#[0-9a-f]{1,64}')
_PLACEHOLDER_PATTERN = re.compile(r'\{"\$secret": ?"([\w.-]{1,80})(?:#([0-9a-f]{64}))?"\}')
_REFERENCE_PATTERN = re.compile(r"\$\{[^{}]*\}")

MacFunction = Callable[[str, Any], str]
SecretLookup = Callable[[str, str, str], Any]
"""Returns the value for a name, an HMAC (empty if there is none) and the target path.

Raises KeyError if it is unknown.
"""


@dataclass(frozen=True, slots=True)
class Secret:
    """One redacted secret: its name in the arguments, its path, value and HMAC."""

    name: str
    path: str
    value: Any = field(repr=False)
    mac: str


@dataclass(frozen=True, slots=True)
class RedactedArguments:
    text: str
    secrets: tuple[Secret, ...] = ()


def redact_secrets(
    locations: SecretLocations | None, arguments: Any, mac: MacFunction, *, is_plan: bool = False
) -> RedactedArguments:
    """Redact the secrets in checked arguments. In a plan's step, a value that is only a reference is no secret.

    Without `locations`, only known shapes are secret.
    """
    text = canonical_text(arguments)
    if locations is None and not may_hold_secret(text):
        return RedactedArguments(text)
    cutter = _Redactor(locations, mac, is_plan=is_plan)
    cut = cutter.cut(arguments, "", None, locations.top if locations else ())
    return (
        RedactedArguments(canonical_text(cut), tuple(cutter.found.values()))
        if cutter.found
        else RedactedArguments(text)
    )


def find_argument_secrets(locations: SecretLocations | None, arguments: Any) -> tuple[Secret, ...]:
    """Return the secrets in arguments. Nothing is stored, so their `mac` needs no key: it is path and value."""
    return redact_secrets(locations, arguments, lambda path, value: f"{path} {canonical_text(value)}").secrets


class _Redactor:
    def __init__(self, locations: SecretLocations | None, mac: MacFunction, *, is_plan: bool) -> None:
        self._places = locations
        self._mac = mac
        self._is_plan = is_plan
        self._names: set[str] = set()
        self.found: dict[str, Secret] = {}

    def cut(self, value: Any, path: str, name: str | None, schemas: Schemas) -> Any:
        if value is None or value == "" or isinstance(value, bool):
            return value
        if self._places is not None and self._places.is_secret(schemas, name):
            is_reference = self._is_plan and isinstance(value, str) and _REFERENCE_PATTERN.fullmatch(value)
            return value if is_reference else {PLACEHOLDER_KEY: self._keep(path, path, value)}
        if isinstance(value, str):
            return self._redact_text(value, path)
        if isinstance(value, dict):
            members = {}
            for key, each in value.items():
                inner = self._places.for_property(schemas, key) if self._places else ()
                text = self._redact_text(key, path, whole=False)
                cut = text if isinstance(text, str) else key
                # Paths below the member use its redacted key.
                members[cut] = self.cut(each, member_path(path, without_macs(cut)), key, inner)
            return members
        if isinstance(value, list):
            items = []
            for index, each in enumerate(value):
                inner = self._places.for_item(schemas, index) if self._places else ()
                items.append(self.cut(each, member_path(path, index), None, inner))
            return items
        return value

    def _redact_text(self, text: str, path: str, *, whole: bool = True) -> Any:
        matches = find_secrets(text)
        if whole and len(matches) == 1 and (matches[0].start, matches[0].end) == (0, len(text)):
            return {PLACEHOLDER_KEY: self._keep(path, matches[0].kind, text)}
        pieces, end = [], 0
        for match in matches:
            mark = self._keep(path, match.kind, text[match.start : match.end])
            pieces += [text[end : match.start], f'{{"{PLACEHOLDER_KEY}":"{mark}"}}']
            end = match.end
        return "".join([*pieces, text[end:]])

    def _keep(self, path: str, name: str, value: Any) -> str:
        mac = self._mac(path, value)
        if mac not in self.found:
            base = free = _UNSAFE_NAME_CHARACTERS.sub("_", name)[-MAX_SECRET_NAME:] or "secret"
            number = 1
            while free in self._names:
                number += 1
                free = f"{base}_{number}"
            self._names.add(free)
            self.found[mac] = Secret(free, path, value, mac)
        return f"{self.found[mac].name}#{mac}"


def without_macs(text: str) -> str:
    """Return stored JSON text, or its beginning, for display: names of secrets without their HMACs."""
    return _MAC_PATTERN.sub(r"\1", text) if PLACEHOLDER_KEY in text else text


def describe_placeholders(text: str) -> str:
    """Return displayed text with `secret name` in place of placeholders."""
    return _PLACEHOLDER_PATTERN.sub(r"secret \1", text) if PLACEHOLDER_KEY in text else text


def split_at_placeholders(text: str) -> list[tuple[str, str]]:
    """Split displayed text at its placeholders into pairs of text and secret name; the last name is empty."""
    pieces, end = [], 0
    for mark in _PLACEHOLDER_PATTERN.finditer(text):
        pieces.append((text[end : mark.start()], mark[1]))
        end = mark.end()
    return [*pieces, (text[end:], "")]


def placeholders_as_text(value: Any) -> Any:
    """Return a displayed JSON value with each `{"$secret": name}` as text, which a form field can hold and send."""
    if isinstance(value, dict):
        if value.keys() == {PLACEHOLDER_KEY}:
            return f'{{"{PLACEHOLDER_KEY}":"{value[PLACEHOLDER_KEY]}"}}'
        return {key: placeholders_as_text(each) for key, each in value.items()}
    return [placeholders_as_text(each) for each in value] if isinstance(value, list) else value


def holds_secret(text: str) -> bool:
    """Return whether stored text contains placeholders."""
    return PLACEHOLDER in text or '\\"$secret\\"' in text


def find_macs(text: str) -> set[str]:
    return {mac for name, mac in re.findall(r'\$secret\\*": ?\\*"([\w.-]{1,80})#([0-9a-f]{64})', text)}


def restore_secrets(value: Any, known: SecretLookup, path: str = "") -> Any:
    """Return a JSON value with its secrets restored; a placeholder stays if `known` raises KeyError for it."""
    if isinstance(value, str):
        return _restore_value(value, known, path) if PLACEHOLDER_KEY in value else value
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get(PLACEHOLDER_KEY), str):
            name, _, mac = value[PLACEHOLDER_KEY].partition("#")
            try:
                return known(name, mac, path)
            except KeyError:
                return {PLACEHOLDER_KEY: name}
        return {
            _restore_text(key, known, path): restore_secrets(each, known, member_path(path, without_macs(key)))
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [restore_secrets(each, known, member_path(path, str(index))) for index, each in enumerate(value)]
    return value


def _restore_value(text: str, known: SecretLookup, path: str) -> Any:
    """Return a text with its secrets restored; a text that is only a placeholder becomes a value of any type."""
    whole = _PLACEHOLDER_PATTERN.fullmatch(text)
    try:
        return known(whole[1], whole[2] or "", path) if whole else _restore_text(text, known, path)
    except KeyError:
        return f'{{"{PLACEHOLDER_KEY}":"{whole[1]}"}}' if whole else text


def _restore_text(text: str, known: SecretLookup, path: str) -> str:
    def back(mark: "re.Match[str]") -> str:
        try:
            value = known(mark[1], mark[2] or "", path)
        except KeyError:
            return f'{{"{PLACEHOLDER_KEY}":"{mark[1]}"}}'
        return value if isinstance(value, str) else canonical_text(value)

    return _PLACEHOLDER_PATTERN.sub(back, text)


def find_placeholders(value: Any, path: str = "", *, keys: bool = True) -> Iterator[tuple[str, str]]:
    """Yield path and name of every placeholder; the path of a placeholder in a key is that of the object."""
    if isinstance(value, str):
        yield from ((path, mark[1]) for mark in _PLACEHOLDER_PATTERN.finditer(value))
    elif isinstance(value, dict):
        if PLACEHOLDER_KEY in value:
            yield path, str(value[PLACEHOLDER_KEY])[:MAX_SECRET_NAME]
        for key, each in value.items():
            yield from find_placeholders(key, path) if keys else ()
            yield from find_placeholders(each, member_path(path, without_macs(key)), keys=keys)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from find_placeholders(each, member_path(path, str(index)), keys=keys)


def reject_placeholders(arguments: Any) -> None:
    """Raise ParameterError if the arguments contain placeholders: such arguments must not run or be stored."""
    errors = [
        {"path": path, "code": "secret_missing", "message": MISSING_MESSAGE} for path, _ in find_placeholders(arguments)
    ]
    if errors:
        raise ParameterError(MISSING_MESSAGE, {"field": errors[0]["path"] or None, "errors": errors})


def redact_value(value: Any) -> Any:
    """Return a person's JSON value with known shapes of secrets permanently redacted."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {redact_text(key): redact_value(each) for key, each in value.items()}
    return [redact_value(each) for each in value] if isinstance(value, list) else value


def redact_text(text: str) -> str:
    """Return text by people or agents (a goal, a reason) with known shapes of secrets permanently redacted."""
    matches = find_secrets(text)
    for match in reversed(matches):
        text = f'{text[: match.start]}{{"{PLACEHOLDER_KEY}":"{match.kind}"}}{text[match.end :]}'
    return text
