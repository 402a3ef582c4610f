"""What a text of an agent is made of, for pages on which people decide: nothing of it may hide, mislead or be missed.

`catalog.glyphs` finds what does not show, `catalog.lookalikes` what is read as something else; here they are put in
order, with long stretches of nothing and heaps of marks, and with claims that only Toolgate could make.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from catalog.glyphs import is_hidden
from catalog.lookalikes import odd_words

_SUSPECT = re.compile(r"[^ -~\n\t]")
# A screen of nothing: what comes behind it would be missed.
_PLAIN = re.compile(r"[!-~]+(?: [!-~]+)*")
_NOTHING = re.compile(r"[ \t]{40,}|(?:[ \t]*\n){6,}")
# Marks heaped on one letter cover its neighbours, and some strike letters out.
_HEAPED = re.compile(
    "[\u0334-\u0338\u20d2\u20d3\u20d8-\u20eb]|(?<=[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{2})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]"
)
_CLAIMS = re.compile(
    r"\b(?:pre-?\s?approved|already\s+(?:been\s+)?(?:approved|reviewed|cleared)|(?:approved|reviewed|cleared|authori[sz]ed|verified)"
    r"\s+by\b|no\s+(?:review|approval|human)\s+(?:is\s+)?(?:needed|required|necessary)|safe\s+to\s+(?:approve|run)|auto-?approved?"
    r"|approval\s+(?:is\s+)?not\s+(?:needed|required)|press\s+a\b|just\s+approve|ignore\s+(?:all\s+|any\s+)?(?:previous|above|warnings?)"
    r"|(?:this\s+is\s+)?(?:only\s+)?a\s+(?:test|drill)\b[,.!]?\s+(?:approve|nothing)|policy\s*:|toolgate\s*:|system\s*:|reviewer\s*:)",
    re.IGNORECASE,
)


class Shown(NamedTuple):
    """A part of a text: plain, hidden (spelled out in `note`), odd (with `note` beside it) or nothing (counted)."""

    kind: str
    text: str
    note: str = ""


def is_plain(text: str) -> bool:
    """Say whether a text is one line of words in ASCII, of which there is nothing to be said: most texts are."""
    return _PLAIN.fullmatch(text) is not None


def truth_of(text: str) -> list[Shown]:
    """Cut a text into what it shows plainly and what has to be said about the rest, in order; nothing is left out."""
    marks = sorted(_marks(text), key=lambda mark: (mark[0], -mark[1]))
    shown: list[Shown] = []
    done = 0
    for start, end, kind, note in marks:
        if start < done:
            continue
        if start > done:
            shown.append(Shown("plain", text[done:start]))
        shown.append(Shown(kind, text[start:end], note))
        done = end
    if done < len(text):
        shown.append(Shown("plain", text[done:]))
    return shown


def _marks(text: str) -> Iterator[tuple[int, int, str, str]]:
    for match in _NOTHING.finditer(text):
        lines = match[0].count("\n")
        yield match.start(), match.end(), "nothing", f"{lines} empty lines" if lines else f"{len(match[0])} spaces"
    for match in _SUSPECT.finditer(text):
        if is_hidden(match[0]):
            yield match.start(), match.end(), "hidden", f"U+{ord(match[0]):04X}"
    for match in _HEAPED.finditer(text):
        yield match.start(), match.end(), "hidden", f"U+{ord(match[0]):04X}"
    for word in odd_words(text):
        yield word.start, word.end, "odd", word.why


def claims_in(text: str) -> list[str]:
    """Return the phrases of a text that claim what only Toolgate could know: that people have looked already."""
    return list(dict.fromkeys(" ".join(match[0].split()) for match in _CLAIMS.finditer(text)))[:5]
