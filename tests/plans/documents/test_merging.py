"""Tests of merging two people's changes of one draft."""

import copy
from typing import Any

from plans.documents.merging import merge_documents

BASE = {
    "goal": "Compare",
    "steps": [
        {"step_id": 1, "description": "One", "tool": "a", "parameters": {"x": 1, "y": 1}},
        {"step_id": 2, "description": "Two", "tool": "b", "dependencies": [1]},
    ],
}


def changed(change: Any) -> Any:
    document = copy.deepcopy(BASE)
    change(document)
    return document


def merged(*documents: Any, **choices: Any) -> Any:
    found = merge_documents(*documents, **choices)
    assert not found.conflicts
    return found.document


def set_in(index: int, **fields: Any) -> Any:
    return changed(lambda document: document["steps"][index].update(fields))


def test_changes_of_other_steps_and_fields_are_merged():
    theirs = changed(lambda document: document["steps"][0].update(description="First", parameters={"x": 2, "y": 1}))
    mine = changed(lambda document: (document.update(goal="Contrast"), document["steps"][0]["parameters"].update(y=3)))
    found = merged(BASE, theirs, mine)
    assert found["goal"] == "Contrast"
    assert found["steps"][0] == {
        "step_id": 1,
        "description": "First",
        "tool": "a",
        "parameters": {"x": 2, "y": 3},
    }


def test_two_values_for_one_field_are_named_and_chosen():
    theirs, mine = set_in(1, description="Second"), set_in(1, description="Twice")
    [conflict] = merge_documents(BASE, theirs, mine).conflicts
    assert (conflict.path, conflict.step_id, conflict.field) == ("steps.2.description", 2, "description")
    assert (conflict.mine, conflict.theirs) == ("Twice", "Second")
    assert merge_documents(BASE, theirs, mine, {conflict.path: "mine"}).document == mine
    assert merge_documents(BASE, theirs, mine, {conflict.path: "theirs"}).document == theirs


def test_a_changed_step_that_they_deleted_is_a_conflict():
    theirs = changed(lambda document: document["steps"].pop(1))
    mine = set_in(1, tool="c")
    [conflict] = merge_documents(BASE, theirs, mine).conflicts
    assert (conflict.step_id, conflict.field) == (2, "")
    assert merge_documents(BASE, theirs, mine, {"steps.2": "mine"}).document == mine
    assert merge_documents(BASE, theirs, BASE).document == theirs


def test_steps_that_both_added_under_one_number_are_both_kept():
    theirs = changed(lambda document: document["steps"].append({"step_id": 3, "description": "Theirs"}))
    added = [{"step_id": 3, "description": "Mine"}, {"step_id": 4, "description": "Last", "dependencies": [3]}]
    mine = changed(lambda document: document["steps"].extend(added))
    found = merged(BASE, theirs, mine)
    assert {step["description"]: step["step_id"] for step in found["steps"][2:]} == {
        "Theirs": 3,
        "Mine": 5,
        "Last": 4,
    }
    assert next(each for each in found["steps"] if each["step_id"] == 4)["dependencies"] == [5]


def test_moved_steps_keep_the_order_of_who_moved_them():
    mine = changed(lambda document: document["steps"].reverse())
    theirs = set_in(0, description="First")
    for one, other in ((theirs, mine), (mine, theirs)):
        steps = merged(BASE, one, other)["steps"]
        assert [(step["step_id"], step["description"]) for step in steps] == [(2, "Two"), (1, "First")]


def test_documents_of_any_shape_are_compared_as_a_whole():
    for base, theirs, mine in ((None, BASE, set_in(0, tool="c")), (BASE, {"steps": 3}, set_in(0, tool="c"))):
        [conflict] = merge_documents(base, theirs, mine).conflicts
        assert conflict.path == ""
        assert merge_documents(base, theirs, mine, {"": "mine"}).document == mine
    broken = {"goal": 1, "steps": [3, {"step_id": 1}, {"step_id": 1}, {"step_id": True}]}
    assert merge_documents(broken, broken, {**broken, "goal": 2}).document == {**broken, "goal": 2}
