"""The arguments of a call as people judge them: each in full, with its size, and with what nobody can read named.

Texts are those of the agent, passed on unchanged; templates escape them and spell out what does not show.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalog.text.safety import Opaque, claims_in, count_hidden, odd_words, opaque_in, truth_of

if TYPE_CHECKING:
    from approvals.requests.privacy import SecretField

LONG = 1024
"""From this size on (bytes) a value is shown with its size and lines, so that nobody takes a part for the whole."""


# What stands for a secret: in a text only as intake refuses it to everyone, in JSON as `as_text` writes it. Whatever
# else looks like it is what an agent wrote, and is shown as that.
_IN_TEXT = re.compile(r'\{"\$secret": ?"([\w.-]{1,80})"\}')
_IN_JSON = re.compile(r'\{\s+"\$secret": "([\w.-]{1,80})"\s+\}|\{\\"\$secret\\": ?\\"([\w.-]{1,80})\\"\}')


@dataclass(frozen=True)
class Argument:
    """One argument as it would be used; `is_json` tells its text from one that is JSON itself.

    `is_before`, `is_after`: the change below begins, ends with its text. `secret`: it is one as a whole.
    """

    name: str
    text: str
    is_json: bool = False
    secret: "SecretField | None" = None
    is_before: bool = False
    is_after: bool = False
    is_default: bool = False

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return len(self.text.encode(errors="replace"))

    @property
    def lines(self) -> int:
        """Lines of the text."""
        return self.text.count("\n") + 1

    @property
    def is_long(self) -> bool:
        """Say whether the size is worth saying."""
        return self.size >= LONG

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The text in pieces, each with the name of the secret that stood after it; empty after the last."""
        found, end = [], 0
        for mark in (_IN_JSON if self.is_json else _IN_TEXT).finditer(self.text):
            found.append((self.text[end : mark.start()], mark[mark.lastindex or 0]))
            end = mark.end()
        return [*found, (self.text[end:], "")]

    @cached_property
    def nothings(self) -> list[str]:
        """The first long stretches of nothing in it, each counted: a change draws empty lines one by one."""
        return [part.note for part in truth_of(self.text) if part.kind == "nothing"][:3]

    @cached_property
    def opaque(self) -> list[Opaque]:
        """What of it nobody can read."""
        return opaque_in(self.text)


@dataclass(frozen=True, slots=True)
class Warnings:
    """What is to be said before anybody reads what an agent wrote.

    `hidden` counts characters that do not show, `odd` words that may be read as others; `claims` are phrases that say
    what only Toolgate could know.
    """

    hidden: int
    odd: int
    claims: list[str]

    @property
    def any(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.hidden or self.odd or self.claims)


def warnings_about(arguments: Mapping[str, Any], reason: str) -> Warnings:
    """Return what is to be said about the arguments and the reason of a call."""
    texts = [*_texts_in(arguments), reason]
    hidden, odd = sum(map(count_hidden, texts)), sum(len(odd_words(text)) for text in texts)
    return Warnings(hidden, odd, claims_in("\n".join(texts)))


def argument(name: str, value: Any, **more: Any) -> Argument:
    """Return an argument with the text of its value, and with more fields of it."""
    return Argument(name, as_text(value), is_json=not isinstance(value, str), **more)


def as_text(value: Any) -> str:
    """Return a value as a person reads it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def as_lines(arguments: Mapping[str, Any]) -> str:
    """Return arguments as lines to compare, texts as they are: a changed line of a long text is one changed line."""
    parts = []
    for name, value in sorted(arguments.items()):
        if isinstance(value, str) and "\n" in value:
            parts.append("\n".join([f"{name}:", *(f"    {line}" for line in value.split("\n"))]))
        else:
            parts.append(f"{name}: {json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)}")
    return "".join(f"{part}\n" for part in parts)


def _texts_in(value: Any) -> list[str]:
    """Return every text and name inside a JSON value."""
    if isinstance(value, Mapping):
        return [text for name, inner in value.items() for text in (name, *_texts_in(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _texts_in(inner)]
    return [value] if isinstance(value, str) else []
