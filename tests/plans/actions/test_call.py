"""Tests of direct calls."""

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import ApprovalRequest, AuditEntry, Policy, PolicyRevision
from catalog.access.roles import NotAllowed
from catalog.errors import (
    Conflict,
    ParameterError,
    PolicyRefusal,
    QueryTypeUnsupported,
    ToolDisabled,
    ToolDrifted,
    UnknownTool,
)
from catalog.models import Call, CatalogState, Implementation, Tool, ToolVersion
from catalog.results import Preview
from plans.actions.call import CallOrder, create_call
from plans.actions.control import cancel_plan
from plans.engine.retries import MAX_RELEASES
from plans.models import Plan
from plans.store.requesters import Requester
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.conftest import forget_what_was_read
from tests.plans.factories import hurry
from tests.waiting import eventually

SHOWN: dict[str, object] = {
    "summary": "Do x",
    "kind": "text",
    "before": None,
    "after": None,
    "rows": [],
    "state_token": "as it was",
}


def plan_of(call: Call) -> Plan:
    """Return the plan of a call."""
    return Plan.objects.get(public_id=call.plan_ref)


def test_safe_call_runs_as_plan_of_one_step(stage, ada):
    call = create_call(CallOrder("safe", {"value": "x"}, reason="Because."), by=Requester(ada))
    plan = work_off(plan_of(call))
    assert (plan.kind, plan.status, step_of(plan).call, call.reason) == ("call", "completed", call, "Because.")
    call.refresh_from_db()
    assert (call.status, call.attempt, call.response_json["results"]) == ("completed", 1, ["x"])
    assert stage.values("safe") == ["x"]
    assert_gapless(plan)


def test_executor_runs_call_while_requester_waits(executor, stage, ada):
    call = create_call(CallOrder("safe", {"value": "x"}), by=Requester(ada))
    eventually(lambda: Call.objects.get(pk=call.pk).status == "completed", what="the call's end")
    eventually(lambda: plan_of(call).status == "completed", what="the plan's end")


def test_references_in_direct_calls_stay_literal(stage, ada):
    call = create_call(CallOrder("safe", {"value": "${x} $${y}"}), by=Requester(ada))
    work_off(plan_of(call))
    assert stage.values("safe") == ["${x} $${y}"]


def test_dangerous_call_is_held_and_runs_after_approval(stage, ada, rosa):
    call = create_call(CallOrder("dangerous", {"value": "x"}, reason="Because."), by=Requester(ada))
    plan = plan_of(call)
    assert (call.status, request_of(plan).status, step_of(plan).waiting_for) == ("held", "pending", "approval")
    assert (call.reason, request_of(plan).rounds.get().preview_json) == ("Because.", SHOWN)
    approve(plan, rosa)
    assert (work_off(plan).status, stage.values("dangerous")) == ("completed", ["x"])
    assert_gapless(plan)


def refused_orders() -> list[tuple[CallOrder, type[Exception]]]:
    """Return invalid orders with the error that each raises."""
    return [
        (CallOrder("nothing", {}), UnknownTool),
        (CallOrder("safe", {"other": 1}), ParameterError),
        (CallOrder("safe", {"value": 1}, query_type="facts"), ParameterError),
        (CallOrder("sec_financial_data", {"ticker": "AAPL"}, query_type="gossip"), QueryTypeUnsupported),
        (CallOrder("safe", {"value": 1}, plan_ref="plan_unknown"), Plan.DoesNotExist),
    ]


@pytest.mark.parametrize(("order", "error"), refused_orders())
def test_invalid_call_stores_neither_call_nor_plan(stage, ada, order, error):
    with pytest.raises(error):
        create_call(order, by=Requester(ada))
    assert (Call.objects.exists(), Plan.objects.exists()) == (False, False)


def test_disabled_tool_is_refused(stage, ada):
    Tool.objects.filter(name="safe").update(enabled=False)
    forget_what_was_read()
    with pytest.raises(ToolDisabled):
        create_call(CallOrder("safe", {}), by=Requester(ada))
    assert not Plan.objects.exists()


def deny(level: str) -> None:
    """Add a policy that refuses calls of this safety level."""
    PolicyRevision.objects.filter(safety_level=level).update(effect="deny", message="Not today.")
    forget_what_was_read()


def test_call_refused_by_policy_is_not_stored(stage, ada):
    deny("cautious")
    with pytest.raises(PolicyRefusal, match=r"Not today\.") as refused:
        create_call(CallOrder("cautious", {}), by=Requester(ada))
    assert refused.value.policy == Policy.objects.get(revision__safety_level="cautious").name
    assert not Plan.objects.exists()
    [entry] = AuditEntry.objects.filter(action="policy.refused")
    assert (entry.actor, entry.tool_name, entry.details_json["policy"]) == (ada, "cautious", refused.value.policy)


def test_step_refused_by_policy_leaves_audit_entry(stage, ada):
    deny("cautious")
    plan = work_off(make_plan(ada, act(1, "x", "cautious")))
    [entry] = AuditEntry.objects.filter(action="policy.refused")
    assert (plan.status, entry.actor, entry.plan_ref, entry.details_json["step"]) == ("failed", ada, plan.public_id, 1)
    assert entry.details_json["policy"] in step_of(plan).error


def test_policy_changed_before_start_applies(stage, ada):
    call = create_call(CallOrder("cautious", {}), by=Requester(ada))
    deny("cautious")
    plan = work_off(plan_of(call))
    assert (plan.status, call_of(plan).status, stage.played) == ("failed", "failed", [])


def test_tool_disabled_before_start_fails_call(stage, ada):
    call = create_call(CallOrder("safe", {}), by=Requester(ada))
    Tool.objects.filter(name="safe").update(enabled=False)
    CatalogState.objects.update(revision=1000)
    forget_what_was_read()
    plan = work_off(plan_of(call))
    assert (plan.status, call_of(plan).status, call_of(plan).error_kind) == ("failed", "failed", "refused")


def test_call_is_added_to_plan_as_next_step(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    call = create_call(CallOrder("safe", {"value": "x"}, plan_ref=plan.public_id), by=Requester(ada))
    assert (call.plan_ref, call.step_ref) == (plan.public_id, "2")
    assert work_off(plan).status == "in_progress"
    assert stage.values("safe") == ["x"]
    held = create_call(CallOrder("dangerous", {"value": "y"}, plan_ref=plan.public_id), by=Requester(ada))
    assert (held.status, held.step_ref) == ("held", "3")
    for step_id in (1, 3):
        approve(plan, rosa, step_id)
    assert work_off(plan).status == "completed"
    assert_gapless(plan)


@pytest.mark.parametrize("state", ["completed", "cancelled", "fixed"])
def test_plan_without_room_for_steps_refuses_call(stage, ada, state):
    plan = make_plan(ada, act(1, tool="dangerous" if state == "fixed" else "safe"), can_modify=state != "fixed")
    if state == "cancelled":
        cancel_plan(plan, by=Requester(ada))
    work_off(plan)
    for tool in ("safe", "dangerous"):
        with pytest.raises(Conflict), transaction.atomic():
            create_call(CallOrder(tool, {}, plan_ref=plan.public_id), by=Requester(ada))
    assert plan.steps.count() == 1


def test_unclaimed_call_is_cancelled_with_its_plan(stage, ada):
    call = create_call(CallOrder("safe", {}), by=Requester(ada))
    plan = plan_of(call)
    cancel_plan(plan, by=Requester(ada))
    assert (call_of(plan).status, step_of(plan).status) == ("cancelled", "cancelled")
    assert (work_off(plan).status, stage.played) == ("cancelled", [])
    assert events_of(plan)[-1] == "1 step.cancelled"


def test_call_is_not_added_to_plan_of_another_user(stage, ada, ben):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    for tool in ("safe", "dangerous"):
        with pytest.raises(NotAllowed):
            create_call(CallOrder(tool, {}, plan_ref=plan.public_id), by=Requester(ben))
    assert plan.steps.count() == 1


def test_requester_of_added_call_cannot_approve_it(stage, ada, admin, rosa):
    """Nor can the plan's author, nor either of them for a replacing call."""
    admin.groups.add(*rosa.groups.all())
    ada.groups.add(*rosa.groups.all())
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    call = create_call(CallOrder("dangerous", {"value": "y"}, plan_ref=plan.public_id), by=Requester(admin))
    assert call.requested_by == admin
    refuse_both(plan, ada, admin)
    approve(plan, rosa, 2)
    stage.previews["dangerous"] = lambda value, context: Preview("Do y", "text", state_token="another")
    work_off(plan)
    assert call_of(plan, 2).replaces == call
    assert call_of(plan, 2).requested_by == admin
    refuse_both(plan, ada, admin)


def refuse_both(plan: Plan, *people: User) -> None:
    """Check that none of these people may approve the plan's second step."""
    for person in people:
        with pytest.raises(NotAllowed):
            approve(plan, User.objects.get(pk=person.pk), 2)


def test_plan_accepts_at_most_max_steps(stage, ada, monkeypatch):
    monkeypatch.setattr("plans.spec.MAX_STEPS", 2)
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    create_call(CallOrder("safe", {}, plan_ref=plan.public_id), by=Requester(ada))
    with pytest.raises(Conflict), transaction.atomic():
        create_call(CallOrder("safe", {}, plan_ref=plan.public_id), by=Requester(ada))


def test_call_with_other_code_version_fails_without_running(stage, ada):
    """Nothing is stored for another definition."""
    let_catalog_differ(Implementation.objects.filter(tool__name="safe"), digest="another")
    plan = plan_of(create_call(CallOrder("safe", {}), by=Requester(ada)))
    for _ in range(MAX_RELEASES):
        assert work_off(plan).status == "in_progress"
        hurry(plan)
    plan = work_off(plan)
    assert (plan.status, call_of(plan).error_kind, Plan.objects.count()) == ("failed", "drifted", 1)
    let_catalog_differ(ToolVersion.objects.filter(tool__name="safe"), fingerprint="f" * 64)
    with pytest.raises(ToolDrifted):
        create_call(CallOrder("safe", {}), by=Requester(ada))
    assert (Plan.objects.count(), stage.played) == (1, [])


def let_catalog_differ(rows, **values) -> None:
    """Change the tool's definition in the catalog, so that it differs from the loaded code."""
    rows.update(**values)
    CatalogState.objects.update(revision=CatalogState.objects.get().revision + 1)
    forget_what_was_read()


@pytest.mark.django_db(transaction=True)
def test_direct_call_of_drifted_tool_is_left_to_another_process(stage, ada, executor):
    mine = Implementation.objects.get(tool__name="safe").digest
    let_catalog_differ(Implementation.objects.filter(tool__name="safe"), digest="another")
    call = create_call(CallOrder("safe", {"value": "x"}), by=Requester(ada))
    assert (call.status, stage.played) == ("created", [])
    let_catalog_differ(Implementation.objects.filter(tool__name="safe"), digest=mine)
    plan = plan_of(call)
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed")
    assert stage.values("safe") == ["x"]


@pytest.mark.parametrize("name", ["dangerous", "cautious"])
def test_held_call_of_drifted_tool_is_left_to_another_process(stage, ada, name):
    """This process would show a preview of the wrong code."""
    held = PolicyRevision.objects.get(safety_level="dangerous")
    PolicyRevision.objects.filter(safety_level="cautious").update(effect="hold", stages=held.stages)
    mine = Implementation.objects.get(tool__name=name).digest
    let_catalog_differ(Implementation.objects.filter(tool__name=name), digest="another")
    call = create_call(CallOrder(name, {"value": "x"}), by=Requester(ada))
    assert (call.status, ApprovalRequest.objects.count()) == ("created", 0)
    let_catalog_differ(Implementation.objects.filter(tool__name=name), digest=mine)
    plan = work_off(plan_of(call))
    assert (call_of(plan).status, request_of(plan).call, stage.played) == ("held", call, [])
