"""Every pair of statuses: moves in the tables succeed, all others raise Conflict."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import models

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from catalog import states as call_states
from catalog.core.transactions import allowed_sources, move, try_move
from catalog.errors import Conflict
from catalog.models import Call
from catalog.states import CallStatus
from plans.models import Plan, Step
from plans.states import PLAN_TERMINAL, PlanStatus, StepStatus
from tests.approvals.factories import ask, held_call
from tests.builders import act, make_plan

Make = Callable[[User], models.Model]


def make_step(author: User) -> Step:
    """Return the only step of a new plan."""
    return make_plan(author, act(1)).steps.get()


KINDS: list[tuple[type[models.Model], type[models.TextChoices], Make]] = [
    (Call, CallStatus, held_call),
    (Step, StepStatus, make_step),
    (Plan, PlanStatus, lambda author: make_plan(author, act(1))),
    (ApprovalRequest, RequestStatus, ask),
]


@pytest.mark.parametrize(("model", "statuses", "make"), KINDS, ids=["call", "step", "plan", "request"])
def test_every_pair_of_statuses(stage, ada, model, statuses, make):
    """One row goes through all of them."""
    row = model.objects.filter(pk=make(ada).pk)
    assert set(model.MOVES) == set(statuses)
    for before, after in product(statuses, statuses):
        row.update(status=before)
        if after in model.MOVES[before]:
            move(row, to=after)
            assert row.get().status == after
        else:
            with pytest.raises(Conflict):
                move(row, to=after)
            assert row.get().status == before


@pytest.mark.parametrize("model", [each[0] for each in KINDS])
def test_unknown_status_is_not_moved(stage, ada, model):
    """As written by a newer version."""
    make = next(make for kind, _, make in KINDS if kind is model)
    rows: Any = model
    row = rows.objects.filter(pk=make(ada).pk)
    row.update(status="vanished")
    assert [try_move(row, to=status) for status in rows.MOVES] == [0] * len(rows.MOVES)
    assert allowed_sources(rows.MOVES, "vanished") == []


def test_terminal_statuses_are_left_only_by_a_retry():
    """They are the same everywhere."""
    ends = {name for name, targets in Call.MOVES.items() if not targets}
    assert ends == call_states.TERMINAL == {"completed", "failed", "cancelled"}
    assert {name for name, targets in Plan.MOVES.items() if targets <= {"in_progress"}} == PLAN_TERMINAL
    assert {name for name, targets in Step.MOVES.items() if targets <= {"pending"}} == ends


def test_every_status_can_be_reached():
    first = {"call": {"created"}, "step": {"pending"}, "plan": {"pending"}, "approval request": {"pending"}}
    for model, statuses, _ in KINDS:
        moves: dict[str, frozenset[str]] = model.MOVES  # type: ignore[attr-defined]
        reached = set(first[str(model._meta.verbose_name)])
        while more := {target for status in reached for target in moves[status]} - reached:
            reached |= more
        assert reached == set(statuses)


def test_move_changes_exactly_one_row(stage, ada):
    """Two or none raise Conflict."""
    plan = make_plan(ada, act(1), act(2))
    with pytest.raises(Conflict):
        move(Step.objects.filter(plan=plan), to=StepStatus.IN_PROGRESS)
    with pytest.raises(Conflict):
        move(Step.objects.none(), to=StepStatus.IN_PROGRESS)
