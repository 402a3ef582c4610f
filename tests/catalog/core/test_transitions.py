"""Status changes by conditional UPDATE."""

import itertools

import pytest

from approvals.models import ApprovalRequest
from approvals.states import MOVES as REQUEST_MOVES
from approvals.states import RequestStatus
from catalog.core.transactions import allowed_sources, move, try_move
from catalog.errors import Conflict
from catalog.models import Call
from catalog.states import MOVES as CALL_MOVES
from catalog.states import TERMINAL, CallStatus
from plans.states import PLAN_MOVES, STEP_MOVES, PlanStatus, StepStatus
from tests.approvals.factories import ask, held_call

pytestmark = pytest.mark.db

TABLES = [
    (CALL_MOVES, CallStatus),
    (REQUEST_MOVES, RequestStatus),
    (PLAN_MOVES, PlanStatus),
    (STEP_MOVES, StepStatus),
]


@pytest.mark.parametrize(("moves", "statuses"), TABLES)
def test_a_table_names_every_status(moves, statuses):
    assert set(moves) == set(statuses)
    assert set().union(*moves.values()) <= set(statuses)


@pytest.mark.parametrize(("moves", "statuses"), TABLES)
def test_sources_are_the_table_read_backwards(moves, statuses):
    for source, target in itertools.product(statuses, repeat=2):
        assert (target in moves[source]) == (source in allowed_sources(moves, target))


def test_a_call_moves_along_its_table_only(ada):
    call = held_call(ada)
    rows = Call.objects.filter(pk=call.pk)
    for source, target in itertools.product(CallStatus, repeat=2):
        rows.update(status=source)
        moved = try_move(rows, to=target)
        assert (moved, rows.get().status) == ((1, target) if target in CALL_MOVES[source] else (0, source))


def test_a_request_moves_along_its_table_only(ada):
    rows = ApprovalRequest.objects.filter(pk=ask(ada).pk)
    for source, target in itertools.product(RequestStatus, repeat=2):
        rows.update(status=source)
        moved = try_move(rows, to=target)
        assert (moved, rows.get().status) == ((1, target) if target in REQUEST_MOVES[source] else (0, source))


def test_nothing_leaves_an_end():
    assert {CallStatus.COMPLETED, CallStatus.FAILED, CallStatus.CANCELLED} == TERMINAL


def test_a_move_that_finds_nothing_is_a_conflict(ada):
    call = held_call(ada)
    with pytest.raises(Conflict):
        move(Call.objects.filter(pk=call.pk), to=CallStatus.OUTCOME_UNKNOWN, message="x")
    call.refresh_from_db()
    assert (call.status, call.message) == ("held", "")


def test_a_move_writes_its_fields_with_the_status(ada):
    call = held_call(ada)
    move(Call.objects.filter(pk=call.pk), to=CallStatus.FAILED, message="No.")
    assert Call.objects.get().message == "No."
