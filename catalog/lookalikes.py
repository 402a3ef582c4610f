"""Finds words that may be read as others: letters of several scripts in one, or letters that imitate Latin ones.

The standard library knows no scripts; the first word of a character's Unicode name is close enough to tell them apart.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache


def _letters(codes: str) -> frozenset[str]:
    return frozenset(chr(int(code, 16)) for code in codes.split())


# Written together in everyday texts, and looking like nothing in the Latin alphabet.
_EAST = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"})
# Drawn as a Latin letter or digit by most fonts; of each script only the letters that deceive.
_IMITATIONS = {
    "CYRILLIC": _letters(
        "0405 0406 0408 0410 0412 0415 0417 041A 041C 041D 041E 0420 0421 0422 0425 042C 0430 0433 0435 0437 "
        "0438 043E 043F 0440 0441 0442 0443 0445 044C 0455 0456 0458 0475 04AE 04BB 0501 051B 051D"
    ),
    "GREEK": _letters(
        "0391 0392 0395 0396 0397 0399 039A 039C 039D 039F 03A1 03A4 03A5 03A7 03B1 03B3 03B9 03BA 03BD 03BF "
        "03C1 03C4 03C5 03C7 03F2 03F3"
    ),
    "ARMENIAN": _letters("053C 054D 0555 0570 0572 0575 0578 057D 0581 0584 0585"),
    "CHEROKEE": _letters(
        "13A0 13A1 13A2 13AA 13AB 13AC 13B3 13B7 13BB 13C0 13C2 13C3 13D4 13DA 13DE 13DF 13E2 13E6 13F4 A4D0"
    ),
    "COPTIC": _letters("2C8E 2C92 2C94 2C98 2C9A 2C9E 2C9F 2CA2 2CA3 2CA4 2CA5 2CA6 2CAC"),
    "LISU": _letters(
        "A4D0 A4D1 A4D2 A4D3 A4D4 A4D6 A4D7 A4D9 A4DA A4DB A4DC A4DD A4DE A4DF A4E0 A4E1 A4E2 A4E3 A4E4 A4E5 "
        "A4E6 A4E7 A4E8 A4E9 A4EA A4EB A4EC A4EE A4EF A4F0 A4F1 A4F2 A4F3 A4F4"
    ),
}
_LATIN_IMITATIONS = _letters(
    "0131 0196 01BD 01C0 0237 0251 0261 0262 0269 026A 0274 027E 0280 028B 028F 0299 029C 029F 2170 2174 "
    "2179 217C 217D 217E 217F"
)
# Part of texts in every script.
_NO_SCRIPT = frozenset({"MODIFIER", "COMBINING", "MICRO", "OHM", "FEMININE", "MASCULINE", "DIGIT", "SUPERSCRIPT"})
# What imitates the marks by which paths, addresses and commands are read.
MARKS = re.compile(
    "[\u2044\u2215\u29f8\u29f5\ufe68\u2024\ua789\u2236\uff20\u01c3\u2223\u2016\u201a\u02d0\u05f4\u037e\u2212\ufe63\uff0d\u2010\u2011\u2027]"
    # These belong to East Asian texts; between ASCII characters they imitate.
    "|(?:(?<=[!-~])[\uff0f\uff3c\uff0e\u3002\uff1a\uff1b\uff06\uff5c\u30fb\u2039\u203a]|[\uff0f\uff3c\uff0e\u3002\uff1a\uff1b\uff06\uff5c\u30fb](?=[!-~]))"
)
# Letters in circles and squares are symbols to Unicode; people read them.
_WORD = re.compile("[\\w\u2460-\u24ff\U0001f130-\U0001f189]+")


@dataclass(frozen=True, slots=True)
class OddWord:
    """A word from `start` to `end` that may be read as another, and why in words."""

    start: int
    end: int
    why: str


def odd_words(text: str) -> list[OddWord]:
    """Return the words of a text that may be read as others, in order."""
    return [] if text.isascii() else sorted(_odd_words(text), key=lambda word: word.start)


def _odd_words(text: str) -> Iterator[OddWord]:
    end = 0
    for line in text.splitlines(keepends=True):
        start, end = end, end + len(line)
        if line.isascii():
            continue
        native = {script_of(each) for each in line if _is_plain_native(each)}
        for found in _WORD.finditer(line):
            why = "" if found[0].isascii() else _why(found[0], native)
            if why:
                yield OddWord(start + found.start(), start + found.end(), why)
        for found in MARKS.finditer(line):
            name = unicodedata.name(found[0], "").lower()
            yield OddWord(start + found.start(), start + found.end(), f"U+{ord(found[0]):04X} {name}")


def _why(word: str, native: set[str]) -> str:
    """Say why a word is odd; empty when it is not. `native` are the scripts that the line is truly written in."""
    styled = [each for each in word if _is_styled(each)]
    if styled:
        return _said(styled, "other forms of plain letters")
    scripts = {script for script in map(script_of, word) if script}
    families = {"EAST" if script in _EAST else script for script in scripts} or {""}
    if len(families) > 1 and families != {"EAST", "LATIN"}:
        strangers = [each for each in word if script_of(each) not in ("", "LATIN")] or list(word)
        spelled = ", ".join(dict.fromkeys(f"U+{ord(each):04X}" for each in strangers[:4]))
        return f"mixes {' and '.join(sorted(each.capitalize() for each in families))}: {spelled}"
    script = next(iter(families))
    if script == "LATIN":
        return _said([each for each in word if each in _LATIN_IMITATIONS], "imitates other letters")
    imitates = script in _IMITATIONS and script not in native
    return _said(list(word), f"is {script.capitalize()}, not Latin") if imitates else ""


def _said(characters: list[str], what: str) -> str:
    spelled = ", ".join(dict.fromkeys(f"U+{ord(each):04X}" for each in characters[:4] if not each.isascii()))
    return f"{what}: {spelled}" if spelled else ""


def _is_plain_native(character: str) -> bool:
    """Say whether a letter of another script could not be taken for a Latin one: its line is written in that script."""
    script = script_of(character)
    return script in _IMITATIONS and character not in _IMITATIONS[script]


def _is_styled(character: str) -> bool:
    """Say whether this is a letter or digit of ASCII in another form: mathematical, wide, in a circle, ligated."""
    if character.isascii() or unicodedata.category(character) not in ("Ll", "Lu", "Lo", "So", "Nd", "Nl"):
        return False
    plain = unicodedata.normalize("NFKC", character)
    return plain.isascii() and plain.isalnum() and unicodedata.name(character, "").split()[0] not in _NO_SCRIPT


@lru_cache(maxsize=4096)
def script_of(character: str) -> str:
    """Return the script of a letter or digit as the first word of its name; empty for what every script uses."""
    if character.isascii():
        return "LATIN" if character.isalpha() else ""
    first = unicodedata.name(character, "").partition(" ")[0]
    if unicodedata.category(character)[0] not in "LNS" or first in _NO_SCRIPT:
        return ""
    return "DOUBLE-STRUCK" if first in ("DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER") else first
