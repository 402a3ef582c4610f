"""Warnings about the text of a call that an agent wrote: its arguments and its reason."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.secrets.placeholders import without_macs
from catalog.text.deceptive_text import approval_claims, confusable_words, count_hidden


@dataclass(frozen=True, slots=True)
class ArgumentWarnings:
    """Warnings about text by an agent: counts of `hidden` characters and `odd` words, false `claims` of approval."""

    hidden: int
    odd: int
    claims: list[str]

    @property
    def any(self) -> bool:
        return bool(self.hidden or self.odd or self.claims)


def argument_warnings(arguments: Mapping[str, Any], reason: str) -> ArgumentWarnings:
    texts = [*_texts_in(arguments), reason]
    hidden, odd = sum(map(count_hidden, texts)), sum(len(confusable_words(text)) for text in texts)
    return ArgumentWarnings(hidden, odd, approval_claims("\n".join(texts)))


def is_deceptive(arguments: str, reason: str) -> bool:
    """Return True if a call's arguments (stored JSON) or its reason give rise to a warning."""
    return argument_warnings(json.loads(without_macs(arguments)), reason).any


def _texts_in(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for name, inner in value.items() for text in (name, *_texts_in(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _texts_in(inner)]
    return [value] if isinstance(value, str) else []
