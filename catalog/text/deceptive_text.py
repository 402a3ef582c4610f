"""Detection of hidden, imitating or unreadable text, for pages on which people decide. Texts are not changed."""

import base64
import binascii
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

# Everything outside plain ASCII is checked; line feed and tab are layout.
_SUSPECT_CHARACTER = re.compile(r"[^ -~\n\t]")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Letters, marks and symbols by category, but rendered blank.
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


class VisibilityRun(NamedTuple):
    """A run of visible text, or one hidden character spelled out as U+XXXX."""

    text: str
    hidden: bool


# Emoji are drawn from several characters: a sign, a variation selector, a skin tone, and joiners between signs.
_EMOJI = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934-\u2b55"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff]"
    "(?:\ufe0f|[\U0001f3fb-\U0001f3ff])?"
)
# Joiners also shape letters: between those of Arabic script, and after an Indic virama.
_DRAWN = re.compile(
    rf"{_EMOJI}(?:\u200d{_EMOJI})*|[0-9#*]\ufe0f\u20e3|(?<=[\u0620-\u06ff])\u200c(?=[\u0620-\u06ff])"
    "|(?<=[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d])[\u200c\u200d]"
)


def hidden_places(text: str) -> list[int]:
    """Return the positions of hidden characters, except characters that form an emoji or shape a letter."""
    found = [match.start() for match in _SUSPECT_CHARACTER.finditer(text) if is_hidden(match[0])]
    if not found:
        return []
    drawn = {place for match in _DRAWN.finditer(text) for place in range(*match.span())}
    return [place for place in found if place not in drawn]


def is_hidden(character: str) -> bool:
    """Return whether a reader could miss this character or be misled by it."""
    code = ord(character)
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or any(
        first <= code <= last for first, last in _BLANK_RANGES
    )


def split_hidden(text: str) -> list[VisibilityRun]:
    """Split text into visible runs and spelled-out hidden characters, in order."""
    pieces: list[VisibilityRun] = []
    done = 0
    for place in hidden_places(text):
        if place > done:
            pieces.append(VisibilityRun(text[done:place], hidden=False))
        pieces.append(VisibilityRun(f"U+{ord(text[place]):04X}", hidden=True))
        done = place + 1
    if done < len(text):
        pieces.append(VisibilityRun(text[done:], hidden=False))
    return pieces


def count_hidden(text: str) -> int:
    return len(hidden_places(text))


def _letter_set(codes: str) -> frozenset[str]:
    return frozenset(chr(int(code, 16)) for code in codes.split())


# Mixed in ordinary texts, and unlike anything in the Latin alphabet.
_EAST_ASIAN_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"}
)
# Rendered like a Latin letter or digit by most fonts; of each script only the deceptive letters.
_IMITATIONS = {
    "CYRILLIC": _letter_set(
        "0405 0406 0408 0410 0412 0415 0417 041A 041C 041D 041E 0420 0421 0422 0425 042C 0430 0433 0435 0437 "
        "0438 043E 043F 0440 0441 0442 0443 0445 044C 0455 0456 0458 0475 04AE 04BB 0501 051B 051D"
    ),
    "GREEK": _letter_set(
        "0391 0392 0395 0396 0397 0399 039A 039C 039D 039F 03A1 03A4 03A5 03A7 03B1 03B3 03B9 03BA 03BD 03BF "
        "03C1 03C4 03C5 03C7 03F2 03F3"
    ),
    "ARMENIAN": _letter_set("053C 054D 0555 0570 0572 0575 0578 057D 0581 0584 0585"),
    "CHEROKEE": _letter_set(
        "13A0 13A1 13A2 13AA 13AB 13AC 13B3 13B7 13BB 13C0 13C2 13C3 13D4 13DA 13DE 13DF 13E2 13E6 13F4 A4D0"
    ),
    "COPTIC": _letter_set("2C8E 2C92 2C94 2C98 2C9A 2C9E 2C9F 2CA2 2CA3 2CA4 2CA5 2CA6 2CAC"),
    "LISU": _letter_set(
        "A4D0 A4D1 A4D2 A4D3 A4D4 A4D6 A4D7 A4D9 A4DA A4DB A4DC A4DD A4DE A4DF A4E0 A4E1 A4E2 A4E3 A4E4 A4E5 "
        "A4E6 A4E7 A4E8 A4E9 A4EA A4EB A4EC A4EE A4EF A4F0 A4F1 A4F2 A4F3 A4F4"
    ),
}
_LATIN_IMITATIONS = _letter_set(
    "0131 0196 01BD 01C0 0237 0251 0261 0262 0269 026A 0274 027E 0280 028B 028F 0299 029C 029F 1D00 1D04 "
    "1D05 1D07 1D0A 1D0B 1D0D 1D0F 1D18 1D1B 1D1C 1D20 1D21 1D22 2170 2174 2179 217C 217D 217E 217F A730 "
    "A731 A7AF"
)
# Used in texts of every script.
_NO_SCRIPT = frozenset({"MODIFIER", "COMBINING", "MICRO", "OHM", "FEMININE", "MASCULINE", "DIGIT", "SUPERSCRIPT"})
# Imitations of the punctuation in paths, addresses and commands.
CONFUSABLE_PUNCTUATION = re.compile(
    "[\u2044\u2215\u29f8\u29f5\ufe68\u2024\ua789\u2236\uff20\u01c3\u2223\u2016\u201a\u02d0\u05f4\u037e\u2212\ufe63\uff0d\u2010\u2011\u2027]"
    # Normal in East Asian texts, but imitations between ASCII characters.
    "|(?:(?<=[!-~])[\uff0f\uff3c\uff0e\u3002\uff1a\uff1b\uff06\uff5c\u30fb\u2039\u203a]|[\uff0f\uff3c\uff0e\u3002\uff1a\uff1b\uff06\uff5c\u30fb](?=[!-~]))"
)
# Letters in circles and squares are symbols in Unicode, but readable as letters.
_WORD_PATTERN = re.compile("[\\w\u2460-\u24ff\U0001f130-\U0001f189]+")


@dataclass(frozen=True, slots=True)
class ConfusableWord:
    """A word from `start` to `end` that a reader may take for another word; `why` says for what reason."""

    start: int
    end: int
    why: str


def confusable_words(text: str) -> list[ConfusableWord]:
    words: list[ConfusableWord] = []
    end = 0
    for line in text.splitlines(keepends=True):
        start, end = end, end + len(line)
        if line.isascii():
            continue
        # The line is written in the scripts of its letters that cannot be taken for Latin ones.
        scripts = {each: script_of(each) for each in line}
        native = {name for each, name in scripts.items() if name in _IMITATIONS and each not in _IMITATIONS[name]}
        for found in _WORD_PATTERN.finditer(line):
            why = "" if found[0].isascii() else _confusable_reason(found[0], native)
            if why:
                words.append(ConfusableWord(start + found.start(), start + found.end(), why))
        for found in CONFUSABLE_PUNCTUATION.finditer(line):
            why = f"U+{ord(found[0]):04X} {unicodedata.name(found[0], '').lower()}"
            words.append(ConfusableWord(start + found.start(), start + found.end(), why))
    return sorted(words, key=lambda word: word.start)


def _confusable_reason(word: str, native: set[str]) -> str:
    """Return why a word is confusable, or an empty text; `native` has the scripts that the line plainly uses."""
    styled = [each for each in word if _is_styled(each)]
    if styled:
        return _describe_characters(styled, "other forms of plain letters")
    scripts = {script for script in map(script_of, word) if script}
    families = {"EAST" if script in _EAST_ASIAN_SCRIPTS else script for script in scripts} or {""}
    if len(families) > 1 and families != {"EAST", "LATIN"}:
        strangers = [each for each in word if script_of(each) not in ("", "LATIN")] or list(word)
        spelled = ", ".join(dict.fromkeys(f"U+{ord(each):04X}" for each in strangers[:4]))
        return f"mixes {' and '.join(sorted(each.capitalize() for each in families))}: {spelled}"
    script = next(iter(families))
    if script == "LATIN":
        return _describe_characters([each for each in word if each in _LATIN_IMITATIONS], "imitates other letters")
    imitates = script in _IMITATIONS and script not in native
    return _describe_characters(list(word), f"is {script.capitalize()}, not Latin") if imitates else ""


def _describe_characters(characters: list[str], what: str) -> str:
    spelled = ", ".join(dict.fromkeys(f"U+{ord(each):04X}" for each in characters[:4] if not each.isascii()))
    return f"{what}: {spelled}" if spelled else ""


def _is_styled(character: str) -> bool:
    """Return whether this is an ASCII letter or digit in another form: mathematical, wide, circled, ligature."""
    if character.isascii() or unicodedata.category(character) not in ("Ll", "Lu", "Lo", "So", "Nd", "Nl"):
        return False
    plain = unicodedata.normalize("NFKC", character)
    return plain.isascii() and plain.isalnum() and unicodedata.name(character, "").split()[0] not in _NO_SCRIPT


@lru_cache(maxsize=4096)
def script_of(character: str) -> str:
    """Return the script of a letter or digit, the first word of its name; empty if all scripts share the character."""
    if character.isascii():
        return "LATIN" if character.isalpha() else ""
    first = unicodedata.name(character, "").partition(" ")[0]
    if unicodedata.category(character)[0] not in "LNS" or first in _NO_SCRIPT:
        return ""
    return "DOUBLE-STRUCK" if first in ("DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER") else first


MIN_ENCODED_RUN, MIN_DECODED_RUN = 32, 24
"""Characters: shorter runs than the first are words, ids or numbers; shorter than the second, even with text inside."""
MAX_DECODED_TEXT = 300
MIN_ENTROPY_BITS = 3.6
"""Bits of entropy per character, above which a run of letters and digits is not a word of any language."""
_RUN = re.compile(rf"[A-Za-z0-9+/_-]{{{MIN_DECODED_RUN},}}={{0,2}}")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class EncodedRun:
    """An unreadable run: its apparent encoding, its length, and the beginning of the decoded text."""

    kind: str
    length: int
    decoded: str = ""


def encoded_runs(text: str, limit: int = 5) -> list[EncodedRun]:
    found = (_classify_by_form(match[0]) for match in _RUN.finditer(text))
    return [each for each in found if each and (each.decoded or each.length >= MIN_ENCODED_RUN)][:limit]


def _classify_by_form(run: str) -> EncodedRun | None:
    if _HEX.fullmatch(run):
        digits = run.removeprefix("0x")
        data = bytes.fromhex(digits) if len(digits) % 2 == 0 else b""
        return EncodedRun("hexadecimal", len(run), _readable_text(data))
    bits_per_character = -sum(count / len(run) * math.log2(count / len(run)) for count in Counter(run).values())
    if bits_per_character < MIN_ENTROPY_BITS or not any(each.isdigit() or each.isupper() for each in run):
        return None
    plain = run.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    decoded = _readable_text(data)
    is_path = "/" in run and not decoded and max(map(len, re.split(r"[/_-]", run))) < MIN_ENCODED_RUN
    return None if is_path else EncodedRun("base64" if decoded or run.endswith("=") else "random", len(run), decoded)


def _readable_text(data: bytes) -> str:
    """Return the beginning of the text in these bytes; empty if they are not text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    readable = sum(each.isprintable() or each in "\n\t" for each in text)
    return text[:MAX_DECODED_TEXT] if text and readable > 0.9 * len(text) else ""


# A screenful of blanks, behind which text would be missed.
_PLAIN_PATTERN = re.compile(r"[!-~]+(?: [!-~]+)*")
# 40 blanks, or 6 empty lines. Begins with a single character because `re` scans for one much faster than for a repeat.
_BLANK_STRETCH = re.compile(r"[ \t\n](?:(?<!\n)[ \t]{39,}|(?:(?<=\n)|[ \t]*\n)(?:[ \t]*\n){5,})")
# Marks stacked on one letter cover its neighbours, and some strike letters out.
_STACKED_MARKS = re.compile(
    "[\u0334-\u0338\u20d2\u20d3\u20d8-\u20e2\u20e4-\u20eb]|(?<!\ufe0f)\u20e3|(?<=[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{2})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]"
)
_APPROVED = r"(?:approved|reviewed|cleared|authori[sz]ed|verified)"
_THIS_WAS = r"(?:this|it|(?:the|this)\s+(?:call|request|action|change|command|step))\s+(?:was|is|has\s+been)\s+"
# Names of roles and reviews of other things are common in texts: they are claims only at the start of a line
# and with a verb of approval, or about the call itself.
_CLAIMS = re.compile(
    r"\bpre-?\s?approved\b|\balready\s+(?:been\s+)?(?:approved|reviewed|cleared)\b"
    rf"|(?:^[^\w\n]{{0,20}}|[.!?]\s|\b{_THIS_WAS}){_APPROVED}\s+by\b"
    r"|\bno\s+(?:review|approval|human)\s+(?:is\s+)?(?:needed|required|necessary)\b|\bauto-?approved?\b"
    r"|\bsafe\s+to\s+(?:approve|run)\b(?!\s+(?:again|twice|repeatedly|concurrently|in\s+parallel|(?:multiple|many)\s+times))"
    r"|\bapproval\s+(?:is\s+)?not\s+(?:needed|required)\b|\bjust\s+approve\b"
    r"|\bpress\s+a\b(?=\W{0,3}(?:$|(?:to|now|twice|again|and)\b))"
    r"|\bignore\s+(?:all\s+|any\s+)?(?:previous|above|warnings?)\b"
    r"|\b(?:this\s+is\s+)?(?:only\s+)?a\s+(?:test|drill)\b[,.!]?\s+(?:approve|nothing)\b"
    r"|^[^\w\n]{0,20}(?:policy|toolgate|system|reviewer|admin(?:istrator)?)[^\w\n]{0,3}:[^\n]{0,80}?"
    r"\b(?:approv\w+|allow\w*|authori[sz]\w+|clear(?:ed|ance)|permit\w*|grant\w*|confirm\w*|accept\w*|agreed|fine|harmless|safe|ok(?:ay)?|go\s+ahead)\b",
    re.IGNORECASE | re.MULTILINE,
)


_CLAIM_STEMS = (
    *("approv", "review", "clear", "author", "verif", "safe", "press", "ignore", "human"),
    *("test", "drill", "policy", "toolgate", "system", "admin"),
)
"""Each claim contains one of them."""


class InspectedPart(NamedTuple):
    """A part of a text: plain, hidden (`note` spells it out), odd (`note` says why) or nothing (a run of blanks)."""

    kind: str
    text: str
    note: str = ""


def is_plain_ascii(text: str) -> bool:
    """Return whether a text is one line of ASCII words. Most texts are, and these need no inspection."""
    return _PLAIN_PATTERN.fullmatch(text) is not None


def inspect_text(text: str) -> list[InspectedPart]:
    """Split an entire text into parts with the notes to display, in order."""
    marks = sorted(_find_marks(text), key=lambda mark: (mark[0], -mark[1]))
    parts: list[InspectedPart] = []
    done = 0
    for start, end, kind, note in marks:
        if start < done:
            continue
        if start > done:
            parts.append(InspectedPart("plain", text[done:start]))
        parts.append(InspectedPart(kind, text[start:end], note))
        done = end
    if done < len(text):
        parts.append(InspectedPart("plain", text[done:]))
    return parts


def _find_marks(text: str) -> Iterator[tuple[int, int, str, str]]:
    for match in _BLANK_STRETCH.finditer(text):
        lines = match[0].count("\n")
        yield match.start(), match.end(), "nothing", f"{lines} empty lines" if lines else f"{len(match[0])} spaces"
    for place in hidden_places(text):
        yield place, place + 1, "hidden", f"U+{ord(text[place]):04X}"
    for match in () if text.isascii() else _STACKED_MARKS.finditer(text):  # the pattern takes long for long texts
        yield match.start(), match.end(), "hidden", f"U+{ord(match[0]):04X}"
    for word in confusable_words(text):
        yield word.start, word.end, "odd", word.why


def approval_claims(text: str) -> list[str]:
    """Return phrases that claim that a person has already reviewed a call. Only Toolgate, not a text, can know."""
    lowered = text.lower()
    if not any(stem in lowered for stem in _CLAIM_STEMS):  # the pattern takes long for long texts
        return []
    return list(dict.fromkeys(" ".join(match[0].split()) for match in _CLAIMS.finditer(text)))[:5]
