"""Races of syncs, changes and calls over the catalog: one contract, no version twice, nothing lost."""

from functools import partial

import pytest

from approvals.audit.verification import verify
from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.lifecycle import invalidate_outdated
from approvals.reviews.decisions import decide
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from catalog.inventory.sync import sync_registered_tools
from catalog.inventory.versions import with_overrides
from catalog.models import Implementation, Tool, ToolVersion
from catalog.tools.registry import get_tool, loaded_variants, register_tool
from plans.actions.call import CallOrder, create_call
from plans.models import Plan
from plans.store.requesters import Requester
from tests import counts
from tests.approvals.factories import approval, ask, make_tool
from tests.builders import act, make_plan
from tests.conftest import forget_what_was_read
from tests.racing import Act, at_once, rounds_at_once
from tests.tools_for_tests import TOOLS
from tests.waiting import eventually

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.timeout(counts.seconds(1800))]
ROUNDS = counts.count(100, 50)


@pytest.fixture
def fresh(transactional_db):
    """A catalog without any tools, and code that has some."""
    for each in TOOLS:
        register_tool(each)
    forget_what_was_read()
    yield
    forget_what_was_read()


def assert_whole():
    """Check that rows and code agree on every tool, and that the audit log is intact."""
    snapshot.drop_snapshot()
    for row in Tool.objects.select_related("current_version").filter(name__in=[each.name for each in TOOLS]):
        loaded, found = get_tool(row.name), snapshot.callable_tool(row.name)
        assert loaded is not None and found is not None and row.current_version is not None
        assert row.current_version.fingerprint == with_overrides(loaded, row).fingerprint
        assert not found.drifted
        references = Implementation.objects.filter(tool=row, registered=True).values_list("reference", flat=True)
        assert sorted(references) == sorted(loaded_variants(loaded))
    assert verify().intact


def test_several_first_syncs_at_once_add_each_tool_once(fresh):
    results = at_once(sync_registered_tools, sync_registered_tools, sync_registered_tools, sync_registered_tools)

    assert sorted(len(each.added) > 0 for each in results) == [False, False, False, True]
    assert ToolVersion.objects.filter(tool__name="safe").count() == 1
    assert_whole()


def test_syncs_and_changes_at_once_leave_what_both_said(fresh, admin):
    sync_registered_tools()
    rounds: list[list[Act]] = []
    for number in range(ROUNDS):
        override = partial(apply_overrides, "safe", {"description_override": f"Set {number}."}, by=admin)
        level = partial(apply_overrides, "safe", {"safety_level": "cautious"}, by=admin, reason="A race.")
        rounds.append([sync_registered_tools, override, level])

    rounds_at_once(rounds)

    row = Tool.objects.get(name="safe")
    assert (row.description_override, row.level_override) == (f"Set {ROUNDS - 1}.", "cautious")
    assert_whole()
    numbers = list(ToolVersion.objects.filter(tool=row).order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))


def test_calls_go_on_while_the_catalog_changes(executor, stage, ada, admin):
    """Every plan runs to its end."""
    plans = []

    def call_often():
        for number in range(10):
            plans.append(make_plan(ada, act(1, number)))
            create_call(CallOrder("safe", {"value": number}), by=Requester(ada))

    def change_often():
        for number in range(10):
            apply_overrides("safe", {"description_override": f"Set {number}."}, by=admin)

    at_once(call_often, change_often)

    keys = [plan.pk for plan in plans]
    assert eventually(lambda: Plan.objects.filter(pk__in=keys, status="completed").count() == len(keys))
    assert_whole()


def test_a_change_and_an_answer_at_once_never_leave_an_approval_of_what_was(transactional_db, ada, admin, rosa):
    """Whichever is first, the request is invalidated and its call cancelled."""
    held = [ask(ada, make_tool(f"tool_{number}")) for number in range(ROUNDS * 2)]
    races: list[list[Act]] = []
    for request in held:
        name = request.call.tool_name
        answer = partial(decide, request, by=rosa, decision=approval(request))
        races.append([answer, partial(apply_overrides, name, {"description_override": "Changed."}, by=admin)])

    rounds_at_once(races)
    while invalidate_outdated():  # a hundred at a time
        pass

    ended = {(each.status, each.call.status) for each in ApprovalRequest.objects.select_related("call")}
    assert ended == {("invalidated", "cancelled")}
    assert AuditEntry.objects.filter(action="approval.invalidated").count() == len(held)
    assert verify().intact
