"""Edits of a plan document by step: add, duplicate, move, delete and connect steps, and what a model proposed.

Documents may have any shape. Each edit returns a new document and leaves what it does not know unchanged; a step that
does not exist raises LookupError.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from catalog.core.canonical_json import Json
from plans.documents.merging import ABSENT, free_number, same, step_number

EMPTY: Mapping[str, Any] = {"goal": "", "steps": []}
UNLINKED = ("expected_key",)
"""Fields that a duplicate does not take over: two steps cannot write one key."""


def steps_of(document: Json) -> list[Any]:
    """Return the list of steps, or an empty one if the document has none."""
    steps = document.get("steps") if isinstance(document, dict) else None
    return steps if isinstance(steps, list) else []


def step_index(document: Json, number: int) -> int:
    """Return the place of a step. Raises LookupError if there is none with this number."""
    for index, step in enumerate(steps_of(document)):
        if step_number(step) == number:
            return index
    raise LookupError(number)


def with_steps(document: Json, steps: Sequence[Any]) -> dict[str, Any]:
    return {**(document if isinstance(document, dict) else EMPTY), "steps": list(steps)}


def with_goal(document: Json, goal: str) -> dict[str, Any]:
    return {**(document if isinstance(document, dict) else EMPTY), "goal": goal}


def add_step(document: Json, after: int | None, description: str) -> tuple[dict[str, Any], int]:
    """Add a step behind another one and make it wait for that one; without `after`, at the end, for none.

    It names an empty tool: until one is chosen, or the step is made a note or an agent's, the plan cannot start.
    """
    steps, number = list(steps_of(document)), free_number(document)
    place = len(steps) if after is None else step_index(document, after) + 1
    step: dict[str, Any] = {"step_id": number, "description": description, "tool": ""}
    steps.insert(place, step if after is None else {**step, "dependencies": [after]})
    return with_steps(document, steps), number


def duplicate_step(document: Json, number: int) -> tuple[dict[str, Any], int]:
    """Add a copy of a step behind it, with a number of its own and without the key of its result."""
    steps, place, copied = list(steps_of(document)), step_index(document, number), free_number(document)
    step = {name: value for name, value in copy.deepcopy(steps[place]).items() if name not in UNLINKED}
    steps.insert(place + 1, {**step, "step_id": copied})
    return with_steps(document, steps), copied


def remove_step(document: Json, number: int) -> dict[str, Any]:
    """Remove a step; what refers to it stays, and is a problem until it is replaced or removed."""
    place = step_index(document, number)
    steps = steps_of(document)
    return with_steps(document, [*steps[:place], *steps[place + 1 :]])


def move_step(document: Json, number: int, by: int) -> dict[str, Any]:
    """Move a step up (`by` below 0) or down in the list; at its ends it stays."""
    steps, place = list(steps_of(document)), step_index(document, number)
    step = steps.pop(place)
    steps.insert(min(max(0, place + by), len(steps)), step)
    return with_steps(document, steps)


def connect_steps(document: Json, number: int, needed: int, *, connected: bool = True) -> dict[str, Any]:
    """Let a step wait for another one, or no longer."""
    steps, place = list(steps_of(document)), step_index(document, number)
    if connected:
        step_index(document, needed)
    step = dict(steps[place])
    needs = step.get("dependencies")
    others = [each for each in (needs if isinstance(needs, list) else []) if not same(each, needed)]
    step["dependencies"] = [*others, needed] if connected else others
    if not step["dependencies"]:
        del step["dependencies"]
    steps[place] = step
    return with_steps(document, steps)


def proposed_fields(document: Json, proposal: Json) -> dict[int, frozenset[str]]:
    """Return the fields of each step that are as a model proposed them."""
    proposed = {step_number(step): step for step in steps_of(proposal)}
    found = {}
    for step in steps_of(document):
        number = step_number(step)
        before = proposed.get(number) if number is not None else None
        if number is None or not isinstance(before, dict):
            continue
        fields = {name for name, value in step.items() if name != "step_id" and same(value, before.get(name, ABSENT))}
        if fields:
            found[number] = frozenset(fields)
    return found
