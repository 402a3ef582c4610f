"""Proofs about conditions, and narrowed envelopes, compared with random calls."""

from datetime import UTC, datetime
from typing import Any

import pytest

from approvals.policy_language.conditions import compile_conditions
from approvals.policy_language.containment import excludes, implies
from approvals.policy_language.envelopes import amount_of, broken_argument, read_proposal, require_narrower
from catalog.dispatch.arguments import CallArguments
from catalog.errors import ParameterError
from tests import counts
from tests.approvals.factories import refusal_at

NOW = datetime(2026, 5, 1, tzinfo=UTC)
VALUES: list[Any] = [0, 1, -3, 2.5, True, None, "", "a", "ab", "b/a", "a/../b", ["a"], ["ab", 1], {}, {"a": 1}]
LARGE = 2**53 + 1
"""An integer that rows name by a text of its digits, which fits both forms."""
VALUES.append(str(LARGE))
OPERANDS: dict[str, list[Any]] = {
    "exists": [None],
    "missing": [None],
    "equals": VALUES,
    "not_equals": VALUES,
    "in": [["a", 1], ["ab"], [2.5, "b/a"], ["a/../b", "a"], [str(LARGE), "ab"]],
    "not_in": [["a", 1], ["ab"], [2.5, "b/a"], [str(LARGE)]],
    "starts_with": ["a", "ab", "a/", "9007"],
    "ends_with": ["a", "ab", "b"],
    "contains": ["a", "ab", 1],
    "matches": ["^a", "b$"],
    "less_than": [0, 2.5, 3, str(LARGE + 1)],
    "greater_than": [-5, 0, 2.5],
}


def rows() -> list[dict[str, Any]]:
    """Return a row for each operator and operand."""
    made = []
    for operator, operands in OPERANDS.items():
        for operand in operands:
            value = {} if operator in ("exists", "missing") else {"value": operand}
            made.append({"path": "x", "operator": operator, **value})
    return made


def test_proofs_hold_for_every_value():
    calls = [{}, *({"x": value} for value in (*VALUES, LARGE, -LARGE))]
    predicates = [compile_conditions([row]) for row in rows()]
    fits = {each.rows[0]: [each.covers(call) for call in calls] for each in predicates}
    proven = 0
    for one in fits:
        for other in fits:
            pairs = list(zip(fits[one], fits[other], strict=True))
            if implies(one, other):
                proven += 1
                assert all(second for first, second in pairs if first), (one, other)
            if excludes(one, other):
                assert not any(first and second for first, second in pairs), (one, other)
        assert implies(one, one) or one.operator in ("equals", "in"), one
    assert proven > 300


def proposal(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"purpose": "Pay bills", "items": list(items), "minutes": 60, **more}


def item(*found: tuple[str, str, Any], count: int = 5, most: float | None = 100, tool: str = "pay") -> dict[str, Any]:
    conditions = [
        {"path": path, "operator": operator} | ({} if value is None else {"value": value})
        for path, operator, value in found
    ]
    limit = {} if most is None else {"sum": {"path": "amount", "at_most": most}}
    return {"tool": tool, "arguments": conditions, "count": count, **limit}


TO = ("to", "starts_with", "a")


@pytest.mark.parametrize(
    ("after", "path"),
    [
        (proposal(item(TO)), None),
        (proposal(item(TO, count=4, most=99.5)), None),
        (proposal(item(TO, ("to", "ends_with", "b"))), None),
        (proposal(item(("to", "in", ["ab", "ac"]))), None),
        (proposal(item(TO, ("amount", "less_than", 5))), None),
        (proposal(item(TO), minutes=59), None),
        (proposal(item(TO, count=6)), "items.0.count"),
        (proposal(item(TO, most=100.5)), "items.0.sum.at_most"),
        (proposal(item(TO, most=None)), "items.0.sum"),
        (proposal(item(("to", "ends_with", "b"))), "items.0.arguments.0"),
        (proposal(item(("to", "in", ["ab", "b"]))), "items.0.arguments.0"),
        (proposal(item(("to", "matches", "^ab"))), "items.0.arguments.0"),
        (proposal(item()), "items.0.arguments"),
        (proposal(item(TO, ("cc", "exists", None))), "items.0.arguments.1.path"),
        (proposal(item(TO, tool="send")), "items.0.count"),
        (proposal(item(TO, tool="other")), "items.0"),
        (proposal(item(TO), item(TO)), "items.1"),
        (proposal(item(TO), minutes=61), "minutes"),
        (proposal(item(TO), purpose="Pay all"), "purpose"),
        (proposal(item(TO), **{"for": {"plan": "plan_1"}}), "for"),
    ],
)
def test_edit_may_only_narrow(after, path):
    before = read_proposal(proposal(item(TO), item(("to", "equals", "z"), count=1, tool="send")))
    try:
        require_narrower(before, read_proposal(after), NOW)
        found = None
    except ParameterError as refusal:
        found = refusal.details["errors"][0]["path"]
    assert found == path


def test_edit_cannot_let_in_commands_that_no_row_bounded():
    """Of a row on the object around it, a command is no part; an edit that names the command would add it."""
    before, after = item(("run", "exists", None)), item(("run", "exists", None), ("run.command", "equals", "rm -r /"))
    bounds = read_proposal(proposal(before))
    call = {"run": {"command": "rm -r /"}, "amount": 1}
    assert not fits(bounds.items[0], call) and fits(read_proposal(proposal(after)).items[0], call)
    with refusal_at("items.0.arguments.1.path", "widened"):
        require_narrower(bounds, read_proposal(proposal(after)), NOW)


@pytest.mark.timeout(counts.seconds(3600))
def test_nothing_outside_an_item_fits_it():
    """Mutate calls inside an item in every way that the item forbids; judge each by hand-written predicates."""
    dice = counts.dice(38)
    terms = item(("to", "in", ["ann", "ben"]), ("cmd.command", "equals", "git push"), ("note.text", "exists", None))
    bounds = read_proposal(proposal(terms)).items[0]
    changes: list[tuple[str, Any]] = [
        *(("to", each) for each in ("cy", "Ann", "ann ", ["ann"], None)),
        *(("cmd", each) for each in ({"command": "git push; ls"}, {"command": "git push", "cwd": "/"}, "git")),
        *(("note", each) for each in ({"text": "x", "html": "y"}, {"html": "y"}, "x")),
        *(("amount", each) for each in (-0.01, "5", None, True, 100.01, [5], 10**30, 1e-19, 2**53)),
        *((name, dice.choice([1, "x", {}, []])) for name in ("cc", "bcc", "amount ", "To")),
    ]
    outside = 0
    for _ in range(counts.count(10_000)):
        call = {
            "to": dice.choice(["ann", "ben"]),
            "cmd": {"command": "git push"},
            "note": {"text": dice.choice(["", "hello", 5, None])},
            "amount": dice.choice([0, 1, 99.99, 100, 0.1]),
        }
        assert fits(bounds, call), call
        for name, value in dice.sample(changes, dice.randint(1, 3)):
            call[name] = value
        outside += not fits(bounds, call)
        assert not fits(bounds, call), call
        del call[dice.choice(["to", "cmd", "note", "amount"])]
        assert not fits(bounds, call), call
    assert outside


def fits(bounds: Any, call: dict[str, Any]) -> bool:
    arguments = CallArguments(call)
    return broken_argument(bounds, arguments) is None and amount_of(bounds, arguments) is not None
