"""Finds the characters that do not show: invisible, control, bidirectional, odd spaces. Changes no text."""

import re
import unicodedata
from typing import NamedTuple

# Whatever is not plain ASCII is looked at; line feed and tab are layout, not hiding.
_SUSPECT = re.compile(r"[^ -~\n\t]")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Letters, marks and symbols by category, yet drawn as nothing at all.
_BLANK_RANGES = (
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian variation selectors
    (0x2800, 0x2800),  # blank Braille pattern
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),  # variation selectors, which have carried smuggled text
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)


class Piece(NamedTuple):
    """A run of visible text, or one hidden character spelled out as U+XXXX."""

    text: str
    hidden: bool


def is_hidden(character: str) -> bool:
    """Tell whether a reader could miss this character or be misled by it."""
    code = ord(character)
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or any(
        first <= code <= last for first, last in _BLANK_RANGES
    )


def split_hidden(text: str) -> list[Piece]:
    """Cut text into visible runs and spelled-out hidden characters, in order."""
    pieces: list[Piece] = []
    shown = 0
    for match in _SUSPECT.finditer(text):
        if not is_hidden(match[0]):
            continue
        if match.start() > shown:
            pieces.append(Piece(text[shown : match.start()], hidden=False))
        pieces.append(Piece(f"U+{ord(match[0]):04X}", hidden=True))
        shown = match.end()
    if shown < len(text):
        pieces.append(Piece(text[shown:], hidden=False))
    return pieces


def count_hidden(text: str) -> int:
    """Count the characters that `split_hidden` would spell out."""
    return sum(is_hidden(match[0]) for match in _SUSPECT.finditer(text))
