"""Three-way merge of plan documents by step and field: two people's changes of one draft."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from catalog.core.canonical_json import Json
from plans.spec import MAX_STEP_ID

Side = Literal["mine", "theirs"]
ABSENT = object()
"""In place of a value that a document does not have."""
BY_KEY = ("parameters", "memory")
"""Fields whose members are compared one by one."""


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """A value that both sides changed. `step_id` is None for a field of the plan; `field` is empty for a whole step.

    `mine` and `theirs` are ABSENT where a side removed the value.
    """

    path: str
    step_id: int | None
    field: str
    mine: Any
    theirs: Any

    @property
    def is_removed_by_me(self) -> bool:
        return self.mine is ABSENT

    @property
    def is_removed_by_them(self) -> bool:
        return self.theirs is ABSENT


@dataclass(frozen=True, slots=True)
class MergedDocument:
    """The merged document; it has their value wherever a conflict is undecided."""

    document: Json
    conflicts: Sequence[MergeConflict] = ()


def merge_documents(base: Json, theirs: Json, mine: Json, choices: Mapping[str, Side] | None = None) -> MergedDocument:
    """Merge two documents that were both made from `base`; `choices` decides conflicts by path.

    A step that both sides added under one number is no conflict: mine gets a free number.
    """
    if theirs == mine:
        return MergedDocument(theirs)
    merge = _Merge(choices or {})
    if not all(map(_is_plan, (base, theirs, mine))):
        return MergedDocument(merge.value(_Place(), base, theirs, mine), merge.conflicts)
    assert isinstance(base, dict) and isinstance(theirs, dict) and isinstance(mine, dict)  # noqa: S101 (checked above)
    mine = _renumbered(base, theirs, mine)
    fields = [{**each, "steps": None} for each in (base, theirs, mine)]
    merged = merge.fields(_Place(), fields)
    merged["steps"] = merge.steps(*(_by_number(each["steps"]) for each in (base, theirs, mine)))
    return MergedDocument(merged, merge.conflicts)


def _is_plan(document: Json) -> bool:
    return isinstance(document, dict) and isinstance(document.get("steps"), list)


def _by_number(steps: Sequence[Any]) -> dict[Any, Any]:
    """Return the steps by number; one without a number of its own gets a key that no other has."""
    found: dict[Any, Any] = {}
    for place, step in enumerate(steps):
        number = step_number(step)
        found[number if number is not None and number not in found else f"place {place}"] = step
    return found


def step_number(step: object) -> int | None:
    """Return the number of a step; None if it has none that a step may have."""
    number = step.get("step_id") if isinstance(step, dict) else None
    return number if type(number) is int and 0 < number <= MAX_STEP_ID else None


def free_number(*documents: Json) -> int:
    """Return a step number above all that these documents have, or the lowest free one."""
    used = {
        number
        for document in documents
        if isinstance(document, dict) and isinstance(document.get("steps"), list)
        for step in document["steps"]
        if (number := step_number(step)) is not None
    }
    highest = max([*used, 0]) + 1
    return highest if highest <= MAX_STEP_ID else next(each for each in range(1, len(used) + 2) if each not in used)


def _renumbered(base: dict[str, Any], theirs: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    """Return my document with new numbers for steps whose numbers they gave to other new steps."""
    old, other, own = (_by_number(each["steps"]) for each in (base, theirs, mine))
    clashing = [
        number for number, step in own.items() if number not in old and number in other and other[number] != step
    ]
    numbers: dict[Any, int] = {}
    for number in clashing:
        if isinstance(number, int):
            taken = {"steps": [{"step_id": each} for each in numbers.values()]}
            numbers[number] = free_number(base, theirs, mine, taken)
    if not numbers:
        return mine
    steps = []
    for step in mine["steps"]:
        number = step_number(step)
        if number is not None:
            needs = step.get("dependencies")
            step = {**step, "step_id": numbers.get(number, number)}
            if isinstance(needs, list):
                step["dependencies"] = [numbers.get(each, each) if type(each) is int else each for each in needs]
        steps.append(step)
    return {**mine, "steps": steps}


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in both documents: its path, and the step and field that conflicts name."""

    path: str = ""
    step_id: int | None = None
    field: str = ""

    def member(self, name: str) -> "_Place":
        join = (f"{self.path}.{name}" if self.path else name, f"{self.field}.{name}" if self.field else name)
        return _Place(join[0], self.step_id, join[1])


@dataclass(slots=True)
class _Merge:
    """A merge in progress. Three values are always the base, theirs and mine."""

    choices: Mapping[str, Side]
    conflicts: list[MergeConflict] = field(default_factory=list)

    def value(self, place: _Place, base: Any, theirs: Any, mine: Any) -> Any:
        if same(mine, base) or same(mine, theirs):
            return theirs
        if same(theirs, base):
            return mine
        chosen = self.choices.get(place.path)
        if chosen is None:
            self.conflicts.append(MergeConflict(place.path, place.step_id, place.field, mine, theirs))
        return mine if chosen == "mine" else theirs

    def fields(self, place: _Place, three: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        merged = {}
        _, theirs, mine = three
        for name in _in_order(theirs, mine):
            here = place.member(name)
            values = [each.get(name, ABSENT) for each in three]
            if here.field in BY_KEY and all(isinstance(each, dict) or each is ABSENT for each in values):
                members = [{} if each is ABSENT else each for each in values]
                found: Any = self.fields(here, members) or (ABSENT if ABSENT in values[1:] else {})
            else:
                found = self.value(here, *values)
            if found is not ABSENT:
                merged[name] = found
        return merged

    def steps(self, base: dict[Any, Any], theirs: dict[Any, Any], mine: dict[Any, Any]) -> list[Any]:
        # Only one side moved steps: its order holds. Both: theirs, with my new steps behind the ones they followed.
        kept = [number for number in base if number in theirs and number in mine]
        moved = [number for number in theirs if number in kept] != kept
        merged = []
        for number in _in_order(theirs, mine) if moved else _in_order(mine, theirs):
            before, they, me = (each.get(number, ABSENT) for each in (base, theirs, mine))
            place = _Place(f"steps.{number}", number if isinstance(number, int) else None)
            if isinstance(they, dict) and isinstance(me, dict):
                found: Any = self.fields(place, [before if isinstance(before, dict) else {}, they, me])
            else:
                found = self.value(place, before, they, me)
            if found is not ABSENT:
                merged.append(found)
        return merged


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(each, other[name]) for name, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _in_order(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> Iterator[Any]:
    """Return the keys of both in the order of the first; those of the second alone follow their neighbours."""
    order = list(first)
    places = {key: place for place, key in enumerate(order)}
    inserted: dict[int, list[Any]] = {}
    last = -1
    for key in second:
        if key in places:
            last = places[key]
        else:
            inserted.setdefault(last, []).append(key)
    yield from inserted.get(-1, ())
    for place, key in enumerate(order):
        yield key
        yield from inserted.get(place, ())
