"""Tests of edits by step, on documents of any shape."""

import copy
from graphlib import TopologicalSorter
from typing import Any

import pytest

from catalog.core.canonical_json import Json
from plans.documents.editing import (
    add_step,
    connect_steps,
    duplicate_step,
    move_step,
    proposed_fields,
    remove_step,
    steps_of,
)
from plans.documents.graphs import without_cycles

PLAN = {
    "goal": "g",
    "steps": [
        {"step_id": 1, "description": "One", "expected_key": "one"},
        "unreadable",
        {"step_id": 4, "description": "Four", "dependencies": [1]},
    ],
}


def numbers(document):
    return [step["step_id"] if isinstance(step, dict) else step for step in steps_of(document)]


def test_edits_leave_the_document_and_what_they_do_not_know():
    before = copy.deepcopy(PLAN)
    added, number = add_step(PLAN, 1, "New")
    assert (number, numbers(added)) == (5, [1, 5, "unreadable", 4])
    assert steps_of(added)[1] == {"step_id": 5, "description": "New", "tool": "", "dependencies": [1]}
    copied, number = duplicate_step(PLAN, 1)
    assert (number, steps_of(copied)[1]) == (5, {"step_id": 5, "description": "One"})
    assert numbers(remove_step(PLAN, 1)) == ["unreadable", 4]
    assert numbers(move_step(PLAN, 4, -1)) == [1, 4, "unreadable"]
    assert numbers(move_step(PLAN, 4, 5)) == numbers(PLAN)
    assert before == PLAN


def test_steps_are_connected_once_and_disconnected():
    document = connect_steps(connect_steps(PLAN, 1, 4), 1, 4)
    assert steps_of(document)[0]["dependencies"] == [4]
    assert "dependencies" not in steps_of(connect_steps(document, 1, 4, connected=False))[0]
    with pytest.raises(LookupError):
        connect_steps(PLAN, 1, 9)


def test_edits_of_documents_without_steps():
    documents: list[Json] = [None, [], {}, {"steps": None}, {"steps": "x"}]
    for document in documents:
        added, number = add_step(document, None, "New")
        assert (number, numbers(added)) == (1, [1])
        with pytest.raises(LookupError):
            remove_step(document, 1)


def test_fields_are_proposed_until_someone_changes_them():
    changed: Any = copy.deepcopy(PLAN)
    changed["steps"][2].update(description="Fourth", tool="a")
    assert proposed_fields(PLAN, changed) == {
        1: {"description", "expected_key"},
        4: {"dependencies"},
    }
    assert proposed_fields(PLAN, None) == {}


def test_cycles_are_opened():
    assert without_cycles({1: [2], 2: [3], 3: [1], 4: [4, 9, 1]}) == {1: [2], 2: [3], 3: [], 4: [1]}
    dense = {step: [each for each in range(70) if each != step] for step in range(70)}
    TopologicalSorter(without_cycles(dense)).prepare()
