"""Finds what nobody can read in a text: long runs of base64 or hexadecimal digits, and random characters. Pure."""

import base64
import binascii
import math
import re
from collections import Counter
from dataclasses import dataclass

SHORTEST, SHORTEST_READ = 32, 24
"""Characters: below the first a run is a word, an id or a number; below the second, even where text is in it."""
MOST_DECODED = 300
LEAST_BITS = 3.6
"""Bits of entropy per character, above which a run of letters and digits is no word of any language."""
_RUN = re.compile(rf"[A-Za-z0-9+/_-]{{{SHORTEST_READ},}}={{0,2}}")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Opaque:
    """A run that nobody can read: what it seems to be, its length, and the beginning of the text that is in it."""

    kind: str
    length: int
    decoded: str = ""


def opaque_in(text: str, limit: int = 5) -> list[Opaque]:
    """Return the first unreadable runs of a text."""
    found = (_judged(match[0]) for match in _RUN.finditer(text))
    return [each for each in found if each is not None][:limit]


def _judged(run: str) -> Opaque | None:
    found = _judged_by_its_looks(run)
    return found if found is None or found.decoded or len(run) >= SHORTEST else None


def _judged_by_its_looks(run: str) -> Opaque | None:
    if _HEX.fullmatch(run):
        return Opaque("hexadecimal", len(run), _as_text(_unhex(run.removeprefix("0x"))))
    if _bits_per_character(run) < LEAST_BITS or not any(each.isdigit() or each.isupper() for each in run):
        return None
    decoded = _as_text(_unbase(run))
    is_path = "/" in run and not decoded and max(map(len, re.split(r"[/_-]", run))) < SHORTEST
    return None if is_path else Opaque("base64" if decoded or run.endswith("=") else "random", len(run), decoded)


def _bits_per_character(text: str) -> float:
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


def _unhex(run: str) -> bytes:
    return bytes.fromhex(run) if len(run) % 2 == 0 else b""


def _unbase(run: str) -> bytes:
    plain = run.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _as_text(data: bytes) -> str:
    """Return the beginning of the text that these bytes are; empty when they are none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    readable = sum(each.isprintable() or each in "\n\t" for each in text)
    return text[:MOST_DECODED] if text and readable > 0.9 * len(text) else ""
