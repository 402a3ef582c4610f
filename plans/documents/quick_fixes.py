"""Quick fixes: edits of a plan's JSON text that each resolve one problem.

Fixes are derived from the problem's fields and the text, not from its message, and leave the rest of the text as it
was typed. Dates are the exception: they are recognised by the message of the tool that refuses them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.utils.translation import gettext

from catalog.errors import MalformedJSON, TooLarge
from plans.documents.files import read_yaml
from plans.documents.reading import Problem


@dataclass(frozen=True, slots=True)
class Fix:
    """One edit: replace `was`, which begins at the character `start`, by `put`; `name` is the form button's name."""

    name: str
    label: str
    text: str
    start: int
    was: str
    put: str

    @property
    def fixed(self) -> str:
        return self.text[: self.start] + self.put + self.text[self.start + len(self.was) :]

    @property
    def script_start(self) -> int:
        """Start of the edit in UTF-16 code units, as JavaScript counts."""
        return _utf16_length(self.text[: self.start])

    @property
    def script_size(self) -> int:
        """Length of the text in UTF-16 code units; the page discards the fix if its text has another length."""
        return _utf16_length(self.text)


def yaml_as_json(text: str) -> str | None:
    """Return a YAML mapping as JSON text; None if the text is not a YAML mapping or begins like JSON."""
    if begins_like_json(text):
        return None
    try:
        document = read_yaml(text)
    except (MalformedJSON, TooLarge):
        return None
    return json.dumps(document, indent=2, ensure_ascii=False) if isinstance(document, dict) else None


def begins_like_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


IS_YAML = "yaml"
"""Code of the problem of a text that is YAML instead of JSON."""


def fixes(problem: Problem, text: str) -> list[Fix]:
    """Return the edits that would fix a problem, the likeliest first. `text` is JSON, or YAML for the code IS_YAML."""
    if problem.code == IS_YAML:
        return [Fix(IS_YAML, gettext("Convert to JSON"), text, 0, text, yaml_as_json(text) or text)]
    make = _FIXES_BY_CODE.get(problem.code, _reorder_date)
    return [
        Fix(f"{problem.path} {label}", label, text, start, text[start:end], put)
        for label, start, end, put in make(problem, text)
        if len(text[start:end]) <= MOST_REPLACED
    ]


MOST_REPLACED = 2000
Edit = tuple[str, int, int, str]
"""The button's label, the start and end of the edit, and the replacement."""


@dataclass(frozen=True, slots=True)
class _TextSpan:
    """A value in a text from `start` to `end`; for a member of an object, its name is at `begin` to `name_end`."""

    begin: int
    name_end: int
    start: int
    end: int
    value: Any


def _rename_member(problem: Problem, text: str) -> Iterator[Edit]:
    place, around = _find(text, problem.path), _find(text, problem.path.rpartition(".")[0])
    for name in problem.candidates:
        if place and around and name not in around.value:
            yield gettext("Rename to %(name)s") % {"name": name}, place.begin, place.name_end, json.dumps(name)


def _replace_value(problem: Problem, text: str) -> Iterator[Edit]:
    place = _find(text, problem.path)
    for name in problem.candidates:
        if place:
            yield gettext("Use %(name)s") % {"name": name}, place.start, place.end, json.dumps(name)


def _replace_reference(problem: Problem, text: str) -> Iterator[Edit]:
    place = _find(text, problem.path)
    if place is None:
        return
    reference = re.compile(r"(?<!\$)\$\{" + re.escape(problem.unknown_name) + r"(?=[.}])")
    written = reference.search(text, place.start, place.end)
    for name in problem.candidates:
        if written:
            yield gettext("Use %(name)s") % {"name": name}, written.start(), written.end(), "${" + name
    if isinstance(place.value, str) and re.fullmatch(reference.pattern + r"[^{}]*\}", place.value):
        yield from _without_member(text, problem.path)


def _without_member(text: str, path: str) -> Iterator[Edit]:
    """Remove a member of an object, with the comma before it or, for the first member, after it."""
    around, _, name = path.rpartition(".")
    holder = _find(text, around)
    if holder is None or not isinstance(holder.value, dict):
        return
    members = list(_members(text, holder.start))
    at = next((place for place, (each, _) in enumerate(members) if each == name), None)
    if at is None:
        return
    start = members[at - 1][1].end if at else members[0][1].begin
    end = members[at][1].end if at or len(members) == 1 else members[1][1].begin
    yield gettext("Leave out %(name)s") % {"name": name}, start, end, ""


def _add_dependency(problem: Problem, text: str) -> Iterator[Edit]:
    number = problem.missing_dependency
    here = ".".join(problem.path.split(".")[:2])
    step, place = _find(text, f"{here}.step_id"), _find(text, f"{here}.dependencies")
    if number is None or step is None:
        return
    label = gettext("Add %(step)s to the dependencies") % {"step": number}
    if place is None:
        member = f'{text[step.begin : step.end]}, "dependencies": [{number}]'
        yield label, step.begin, step.end, member
    elif place.value:
        last = list(_members(text, place.start))[-1][1]
        yield label, last.start, last.end, f"{text[last.start : last.end]}, {number}"
    else:
        yield label, place.start, place.end, f"[{number}]"


def _remove_entry(problem: Problem, text: str) -> Iterator[Edit]:
    around, _, index = problem.path.rpartition(".")
    yield from _without_entry(text, around, lambda name, _: name == index)


def _break_cycle(problem: Problem, text: str) -> Iterator[Edit]:
    """Remove the dependency of the lowest-numbered step on a later one, the likeliest mistake."""
    edge = problem.cycle_edge
    if edge:
        yield from _without_entry(text, problem.path, lambda _, value: value == edge[1])


def _without_entry(text: str, path: str, is_it: Callable[[str, Any], bool]) -> Iterator[Edit]:
    """Remove an entry from a list, with the comma before it or, for the first entry, after it."""
    around = _find(text, path)
    if around is None or not isinstance(around.value, list):
        return
    entries = [place for _, place in _members(text, around.start)]
    at = next((place for place, entry in enumerate(entries) if is_it(str(place), entry.value)), None)
    if at is None:
        return
    start = entries[at - 1].end if at else entries[0].start
    end = entries[at].end if at or len(entries) == 1 else entries[1].start
    yield gettext("Remove %(entry)s") % {"entry": entries[at].value}, start, end, ""


def _reorder_date(problem: Problem, text: str) -> Iterator[Edit]:
    """Rewrite a date whose year, month and day are in another order; yield both readings if both are valid."""
    place = _find(text, problem.path) if _EXPECTS_DATE.search(problem.message) else None
    parts = _DAY.fullmatch(place.value) if place and isinstance(place.value, str) else None
    if place is None or parts is None:
        return
    first, second, third = (int(part) for part in parts.groups())
    orders = [(first, second, third)] if len(parts[1]) > 2 else [(third, second, first), (third, first, second)]
    for year, month, day in dict.fromkeys(orders):
        with suppress(ValueError):
            value = date(year, month, day).isoformat()
            if year > 999:
                yield gettext("Change to %(value)s") % {"value": value}, place.start, place.end, json.dumps(value)


_FIXES_BY_CODE: Mapping[str, Callable[[Problem, str], Iterator[Edit]]] = {
    "unknown_field": _rename_member,
    "unknown_tool": _replace_value,
    "agent_unavailable": _replace_value,
    "unknown_reference": _replace_reference,
    "reference_not_before": _add_dependency,
    "unknown_dependency": _remove_entry,
    "self_dependency": _remove_entry,
    "duplicate_dependency": _remove_entry,
    "circular_dependency": _break_cycle,
}
_EXPECTS_DATE = re.compile(r"YYYY-MM-DD|valid date\b")
_DAY = re.compile(r"([0-9]{1,4})[./ -]([0-9]{1,2})[./ -]([0-9]{1,4})")
_GAP = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def _find(text: str, path: str) -> _TextSpan | None:
    at = _after_gap(text, 0)
    value, end = _DECODER.raw_decode(text, at)
    here, rest = _TextSpan(at, at, at, end, value), path
    while rest:
        inside = _members(text, here.start) if isinstance(here.value, dict | list) else iter(())
        step = next(((name, place) for name, place in inside if f"{rest}.".startswith(f"{name}.")), None)
        if step is None:
            return None
        rest, here = rest[len(step[0]) + 1 :], step[1]
    return here


def _members(text: str, start: int) -> Iterator[tuple[str, _TextSpan]]:
    index, at = 0, _after_gap(text, start + 1)
    while text[at] not in "]}":
        begin = name_end = at
        name: str = str(index)
        if text[start] == "{":
            name, name_end = _DECODER.raw_decode(text, at)
            at = _after_gap(text, _after_gap(text, name_end) + 1)
        value, end = _DECODER.raw_decode(text, at)
        yield name, _TextSpan(begin, name_end, at, end, value)
        index, at = index + 1, _after_gap(text, end)
        if text[at] == ",":
            at = _after_gap(text, at + 1)


def _after_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return gap.end() if gap else at


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
