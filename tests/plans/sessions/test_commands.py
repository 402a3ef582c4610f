"""Session lists as rows: stored when a call ends, as plans, or not at all."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from catalog.access.tokens import create_token
from catalog.context import Session
from catalog.dispatch import pipeline
from catalog.models import Call
from catalog.tools import ToolContext
from plans.actions.call import CallOrder, create_call
from plans.actions.control import cancel_plan
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Plan
from plans.planning_tools import todo_list
from plans.sessions.lists import list_document
from tests.builders import events_of, work_off
from tests.invariants import assert_invariants
from tests.plans.factories import SessionAgent, started_call

pytestmark = pytest.mark.usefixtures("catalog")


@pytest.fixture
def agent(ada: User) -> SessionAgent:
    """Return ada's agent with its own token."""
    token, _ = create_token(user=ada, kind="agent", scopes=["calls:create"])
    return SessionAgent(ada, token=token)


def test_a_list_is_a_plan_of_the_session_in_the_words_of_plans(agent):
    call = agent.call("setup_plan", objective=" Resend the badge ", initial_steps=["Find it", "Send it"])
    assert (call.status, call.message) == ("completed", "Plan initialised with 2 steps.")
    row = agent.row
    assert (row.kind, row.goal, row.status, row.session) == ("session", "Resend the badge", "in_progress", "night")
    assert (row.author, row.token, row.via) == (agent.user, agent.token, "rest")
    assert list(row.steps.values_list("step_id", "description", "status", "tool", "agent")) == [
        (1, "Find it", "pending", "", ""),
        (2, "Send it", "pending", "", ""),
    ]
    assert events_of(row) == ["plan.created", "plan.started"]
    assert_invariants()


def test_what_a_call_answers_is_the_list_as_it_is_stored(agent):
    agent.setup("a")
    call = agent.call("add_step", steps=["b"])
    assert call.message == "Added 1 step."
    assert json.loads(call.response)["results"] == [
        {
            "objective": "Try it",
            "status": "active",
            "steps": [
                {"step_id": 1, "title": "a", "status": "pending"},
                {"step_id": 2, "title": "b", "status": "pending"},
            ],
        }
    ]
    assert agent.call("read_plan").message == "Retrieved the current plan with 2 steps."


def test_steps_move_with_events_and_the_last_one_completes_the_plan(agent):
    agent.setup("a", "b")
    agent.call("update_step", step_id=1, status="in_progress")
    assert agent.statuses == ["in_progress", "pending"]
    agent.call("update_step", step_id=1, status="done", title="A")
    agent.call("update_step", step_id=2, status="done")
    row = agent.row
    assert (row.status, agent.statuses) == ("completed", ["completed", "completed"])
    assert row.completed_at is not None and row.steps.get(step_id=1).description == "A"
    assert events_of(row)[2:] == [
        "1 step.started",
        "plan.changed",
        "1 step.completed",
        "2 step.completed",
        "plan.completed",
    ]
    assert list_document(row).status == "completed"
    assert_invariants()


@pytest.mark.parametrize(("back_to", "stored"), [("pending", "pending"), ("in_progress", "in_progress")])
def test_a_reopened_step_stands_in_a_new_list_that_takes_the_place_of_the_old(agent, back_to, stored):
    old = agent.setup("a", "b", "c")
    agent.call("update_step", step_id=1, status="done")
    agent.call("update_step", step_id=2, status="in_progress")
    assert agent.call("update_step", step_id=1, status=back_to).message == "Step 1 updated."
    assert agent.statuses == [stored, "in_progress", "pending"]
    assert (agent.row.cloned_from, agent.row.pk != old.pk) == (old, True)
    assert_invariants()


def test_a_new_setup_replaces_the_list_and_counts_from_1_again(agent):
    old = agent.setup("a", "b")
    agent.call("update_step", step_id=1, status="done")
    new = agent.setup("x", objective="Other")
    old.refresh_from_db()
    assert (new.pk != old.pk, new.cloned_from, new.goal) == (True, old, "Other")
    assert (old.status, list(old.steps.order_by("step_id").values_list("status", flat=True))) == (
        "cancelled",
        ["completed", "cancelled"],
    )
    assert list(new.steps.values_list("step_id", "description")) == [(1, "x")]
    assert_invariants()


def test_a_refused_call_fails_and_leaves_nothing(agent):
    call = agent.call("add_step", steps=["a"])
    assert (call.status, call.error_kind) == ("failed", "validation_error")
    agent.setup("a")
    events = events_of(agent.row)
    assert agent.call("update_step", step_id=999, status="done").message.endswith("Step 999 does not exist.")
    assert agent.call("add_step", steps=["good", " "]).status == "failed"
    assert (events_of(agent.row), agent.statuses) == (events, ["pending"])


def test_a_list_that_may_not_be_modified_is_refused_and_can_be_read(agent):
    Plan.objects.filter(pk=agent.setup("a").pk).update(can_modify=False)
    for tool, arguments in (
        ("setup_plan", {"objective": "x"}),
        ("add_step", {"steps": ["x"]}),
        ("update_step", {"step_id": 1, "status": "done"}),
    ):
        call = agent.call(tool, **arguments)
        assert (call.status, call.error_kind) == ("failed", "validation_error")
    assert agent.statuses == ["pending"]
    assert agent.call("read_plan").status == "completed"


def test_a_cancelled_list_is_no_longer_active(agent):
    cancel_plan(agent.setup("a"), by=agent.by)
    call = agent.call("add_step", steps=["b"])
    assert (call.status, call.error_kind) == ("failed", "validation_error")
    assert agent.setup("b").status == "in_progress"


def test_each_token_person_and_name_has_a_list_of_its_own(ada, ben):
    first, _ = create_token(user=ada, kind="agent", scopes=["calls:create"])
    second, _ = create_token(user=ada, kind="agent", scopes=["calls:create"])
    owners = [
        SessionAgent(ada, "s", first),
        SessionAgent(ada, "s", second),
        SessionAgent(ada, "s"),
        SessionAgent(ben, "s"),
        SessionAgent(ada, "t"),
    ]
    rows = [owner.setup("a", objective=f"Number {number}") for number, owner in enumerate(owners)]
    assert [owner.row for owner in owners] == rows
    assert len({row.pk for row in rows}) == len(owners)


def test_a_person_has_one_list_by_page_and_by_their_own_tokens(ada):
    token, _ = create_token(user=ada, kind="personal", scopes=["calls:create"])
    row = SessionAgent(ada, "s").setup("a")
    assert SessionAgent(ada, "s", token).row == row
    SessionAgent(ada, "s", token).call("update_step", step_id=1, status="done")
    row.refresh_from_db()
    assert row.status == "completed"


@pytest.mark.django_db(transaction=True)
def test_a_handler_finds_the_session_in_its_context(agent, stage):
    """As in `catalog.testing`: sync, async, in a preview, and in the default session."""
    agent.setup("a")
    seen: list[object] = []

    def look(value: object, context: ToolContext) -> None:
        assert context.session is not None
        assert context.resources.get_optional(Session) in (context.session, None)
        seen.append(context.session[todo_list.Plan].latest())

    stage.acts |= {"safe": look, "safe_async": look}
    stage.previews["dangerous"] = look
    for tool in ("safe", "safe_async", "dangerous"):
        call = create_call(CallOrder(tool, {"value": 1}), by=agent.by)
        work_off(Plan.objects.get(public_id=call.plan_ref))
    assert seen == [list_document(agent.row)] * 3
    agent.name = ""
    nameless = create_call(CallOrder("safe", {"value": 1}), by=agent.by)
    work_off(Plan.objects.get(public_id=nameless.plan_ref))
    assert seen[3:] == [None]


def test_a_session_without_a_name_is_the_default_one_of_its_owner(agent):
    nameless = SessionAgent(agent.user, "", agent.token)
    row = nameless.setup("a")
    assert (row.session, nameless.row) == ("", row)
    assert agent.key.current_list() is None


def test_the_engine_never_claims_a_step_of_a_list(agent):
    row = agent.setup("a", "b")
    assert not row.steps.exclude(ready_at=None).exists()
    assert loop.claim_work(row.pk, owner="tests") is None
    row.refresh_from_db()
    assert (row.status, agent.statuses) == ("in_progress", ["pending", "pending"])


def ended(run: RunningCall, outcome: Any) -> Call:
    """End a call with its handler's answer."""
    loop.finish_and_claim_next(run, outcome, TimeSlice("tests"))
    return Call.objects.get(pk=run.call.pk)


def test_two_calls_that_run_at_once_both_count(agent):
    agent.setup("a")
    first, second = (started_call(agent.ask("add_step", steps=[text])) for text in ("b", "c"))
    outcomes = [loop.run_handler(run) for run in (first, second)]
    ended(second, outcomes[1])
    call = ended(first, outcomes[0])
    assert list(agent.row.steps.order_by("step_id").values_list("description", flat=True)) == ["a", "c", "b"]
    assert [step["step_id"] for step in json.loads(call.response)["results"][0]["steps"]] == [1, 2, 3]
    assert_invariants()


def test_concurrent_command_is_refused_like_a_later_one(agent):
    agent.setup("a")
    slow = started_call(agent.ask("add_step", steps=["b"]))
    outcome = loop.run_handler(slow)
    agent.call("update_step", step_id=1, status="done")
    call = ended(slow, outcome)
    assert (call.status, call.error_kind) == ("failed", "validation_error")
    assert call.message.endswith(json.loads(call.response)["error"])
    assert agent.statuses == ["completed"]


def test_a_call_that_has_lost_its_attempt_changes_nothing(agent):
    agent.setup("a")
    lost = started_call(agent.ask("add_step", steps=["b"]))
    outcome = loop.run_handler(lost)
    Call.objects.filter(pk=lost.call.pk).update(fence=lost.call.fence + 1)
    ended(lost, outcome)
    assert agent.statuses == ["pending"]


def test_what_was_sent_by_a_call_that_fails_is_not_stored(agent):
    agent.setup("a")
    run = started_call(agent.ask("add_step", steps=["b"]))
    assert loop.run_handler(run).success and run.sent
    ended(run, pipeline.timed_out(run.prepared.target.tool))
    assert agent.statuses == ["pending"]


def test_secrets_in_texts_are_redacted(agent):
    key = "AKIA" + "ABCDEFGHIJKLMNOP"
    row = agent.setup(f"Use {key}", objective=f"Rotate {key}")
    stored = row.goal + row.steps.get().description
    assert key not in stored and "$secret" in stored


def test_a_plans_own_step_may_keep_the_list_of_its_session(agent):
    from plans.actions.create import create_plan  # noqa: PLC0415 (only here)
    from plans.spec import PlanDocument  # noqa: PLC0415 (only here)

    step = {"step_id": 1, "description": "Plan", "tool": "planning_setup_plan", "parameters": {"objective": "Inner"}}
    plan = create_plan(PlanDocument.model_validate({"goal": "Outer", "steps": [step]}), by=agent.by)
    assert work_off(plan).status == "completed"
    assert list_document(agent.row) == todo_list.Plan("Inner", "active")
