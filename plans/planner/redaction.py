"""What people answered, kept out of the words of the steps that the planner adds: those are read by everyone.

Only what refers to a private value is private. So where a parameter repeats an answer it becomes a reference to it,
which gives the same text when the step runs; in a description, which nothing is made of, it is cut. What the planner
says in words of its own is not found.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plans.documents.references import literal

SHORT = 4
"""An answer of fewer characters is looked for as a whole word: it may be a part of any other."""
CUT = "…"
_KEPT = r"\$\$\{|\$\{[^{}]*\}"
_TELLING = re.compile(r"\w[\w.+-]*@[\w.-]*\w|[\w-]*\d[\w-]*")
"""What an answer is told by although it is only a part of it: addresses, and what has digits."""

StepDocument = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What somebody answered, and the key under which exactly that is kept; empty when it is not."""

    text: str
    key: str = ""


def without_answers(steps: Sequence[Any], told: Sequence[Told]) -> list[Any]:
    """Return steps in which no answer stands that can be found; what has the wrong shape stays for the check."""
    longest = sorted((each for each in told if each.text), key=lambda each: -len(each.text))
    return [_without(step, longest) if isinstance(step, dict) else step for step in steps] if longest else list(steps)


def _without(step: StepDocument, told: Sequence[Told]) -> StepDocument:
    kept = [each for each in told if each.key]
    found = dict(step)
    if "parameters" in step:
        found["parameters"] = _referring(step["parameters"], kept)
    if isinstance(step.get("done_check"), str):
        found["done_check"] = _named(step["done_check"], kept)
    if isinstance(step.get("description"), str):
        found["description"] = _cut(step["description"], told)
    return found


def _referring(value: Any, kept: Sequence[Told]) -> Any:
    """Return a value whose texts refer to answers where they repeat them."""
    if isinstance(value, dict):
        return {key: _referring(each, kept) for key, each in value.items()}
    if isinstance(value, list):
        return [_referring(each, kept) for each in value]
    if not isinstance(value, str):
        return value
    for each in kept:
        value = _refer(value, each)
    return value


def _refer(text: str, told: Told) -> str:
    """Return a text with references for what was told, but not inside a reference.

    After a dollar sign it stays: the two would stand for the characters of a reference.
    """
    reference = f"${{{told.key}}}"
    if text in (told.text, literal(told.text)):
        return reference
    found = rf"(?<!\$)(?:{_sought(literal(told.text))})|{_KEPT}|(?<!\$)(?:{_sought(told.text)})"
    kept = re.compile(_KEPT)
    return re.sub(found, lambda at: at[0] if kept.fullmatch(at[0]) else reference, text)


def _named(check: str, kept: Sequence[Told]) -> str:
    """Return an expression that names answers where it quoted them."""
    for each in kept:
        for quoted in (repr(each.text), json.dumps(each.text, ensure_ascii=False)):
            check = check.replace(quoted, each.key)
    return check


def _cut(text: str, told: Sequence[Told]) -> str:
    for words in (part for each in told for part in _parts_of(each.text)):
        text = re.sub(_sought(words), CUT, text, flags=re.IGNORECASE)
    return text


def _parts_of(answer: str) -> Iterator[str]:
    """Yield the answer as one line, and what of it tells whose it is."""
    line = " ".join(answer.split())
    if len(line) > 1:
        yield line
        yield from (part for part in _TELLING.findall(line) if len(part) >= SHORT)


def _sought(text: str) -> str:
    found = re.escape(text)
    if text.endswith("$"):  # before a brace it is the beginning of a reference
        found += r"(?!\$?\{)"
    return found if len(text) >= SHORT else rf"(?<!\w){found}(?!\w)"
