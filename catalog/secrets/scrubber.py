"""Scrubbing of known secrets in a tool's output before it is stored, also where escaped for JSON or URLs, or in base64.

Values of fewer than four characters are not searched for: they match too often.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from pydantic_core import to_jsonable_python

from catalog.results import MAX_STATE_TOKEN, Preview
from catalog.secrets.placeholders import PLACEHOLDER_KEY, Secret, placeholders_as_text

MIN_SECRET_LENGTH, MIN_ENCODED_LENGTH = 4, 8
MAX_ENCODED_VARIANTS = 5000
BINARY_CHARSETS = ("utf-8", "utf-16-le")
"""Character sets in which secrets are searched for inside bytes."""


class Scrubber:
    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._whole: dict[tuple[type, Any], str] = {}
        self._names: dict[str, str] = {}
        for secret in secrets:
            for leaf in _leaves(secret.value):
                text = leaf if isinstance(leaf, str) else json.dumps(leaf)
                if len(text) < MIN_SECRET_LENGTH:
                    continue
                self._whole.setdefault((type(leaf), leaf), secret.name)
                for variant in _encoded_variants(text):
                    self._names.setdefault(variant, secret.name)
        self._listed = sorted(self._names, key=len, reverse=True)[:MAX_ENCODED_VARIANTS]
        self._pattern = re.compile("|".join(map(re.escape, self._listed))) if self._listed else None
        self._bytes_pattern: re.Pattern[bytes] | None = None

    def text(self, text: str) -> str:
        """Return a text with `{"$secret":"name"}` in place of secrets."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: f'{{"{PLACEHOLDER_KEY}":"{self._names[match[0]]}"}}', text)

    def data(self, data: bytes) -> bytes:
        """Return bytes with secrets replaced by as many asterisks, so that all other bytes keep their positions."""
        if self._pattern is None:
            return data
        if self._bytes_pattern is None:
            listed = [variant.encode(charset) for variant in self._listed for charset in BINARY_CHARSETS]
            self._bytes_pattern = re.compile(b"|".join(map(re.escape, sorted(listed, key=len, reverse=True))))
        return self._bytes_pattern.sub(lambda match: b"*" * len(match[0]), data)

    def value(self, value: Any) -> Any:
        """Return a JSON value with `{"$secret": name}` in place of secrets, also inside texts and bytes."""
        if isinstance(value, dict):
            return {self.text(key): self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, bytes):
            return self.data(value)
        if (type(value), value) in self._whole:
            return {PLACEHOLDER_KEY: self._whole[type(value), value]}
        return self.text(value) if isinstance(value, str) else value

    def preview(self, preview: Preview) -> Preview:
        """Return a preview without the secrets; a state token that becomes too long is cut."""
        plain = to_jsonable_python(preview)
        words: dict[str, Any] = {
            name: self.text(value) if isinstance(value, str) else value for name, value in plain.items()
        }
        token = words["state_token"]
        words |= {
            "rows": placeholders_as_text(self.value(plain["rows"])),
            "state_token": token and token[:MAX_STATE_TOKEN],
        }
        return Preview(**words)


def scrubber_for(secrets: Sequence[Secret]) -> Scrubber | None:
    return Scrubber(secrets) if secrets else None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif value is not None and not isinstance(value, bool):
        yield value


def _encoded_variants(text: str) -> Iterator[str]:
    yield text
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    if text.strip() != text and len(text.strip()) >= MIN_SECRET_LENGTH:
        yield text.strip()
    yield quote(text, safe="")
    yield quote_plus(text)
    raw = text.encode()
    if len(raw) >= MIN_ENCODED_LENGTH:
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield from _base64_fragments(raw, encode)


def _base64_fragments(raw: bytes, encode: Any) -> Iterator[str]:
    """Yield the base64 characters that depend on these bytes only, for each of the three possible offsets."""
    for offset, lost in ((0, 0), (1, 2), (2, 3)):
        whole = (offset + len(raw)) * 8 // 6
        yield encode(bytes(offset) + raw).decode()[lost:whole]
