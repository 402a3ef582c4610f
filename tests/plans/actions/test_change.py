"""Tests of changes to running plans."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.errors import Conflict
from plans.actions import create
from plans.actions.call import CallOrder, create_call
from plans.actions.change import change_plan, read_plan_change
from plans.actions.control import pause_plan
from plans.actions.create import PlanProblems
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.models import Plan
from plans.store import transactions
from plans.store.plan_documents import step_documents
from plans.store.requesters import Requester
from tests.builders import act, assert_gapless, events_of, make_plan, request_of, step_of, work_off
from tests.rest import Rest, agent, wrong_paths


def change(plan: Plan, by: User | None = None, **fields: Any) -> Plan:
    """Apply a change as the plan's author, or as `by`; return the plan."""
    change_plan(plan, read_plan_change(fields), by=Requester(by or plan.author))
    plan.refresh_from_db()
    return plan


def problems(plan: Plan, **fields: Any) -> list[tuple[str, str]]:
    """Return paths and codes of the problems of a change, which must change nothing."""
    before = step_documents(plan)
    with pytest.raises(PlanProblems) as refused:
        change(plan, **fields)
    assert step_documents(plan) == before
    return [(problem.path, problem.code) for problem in refused.value.problems]


def test_steps_are_added_edited_and_removed(stage, ada):
    first = act(1, "a", expected_key="x", output_path=["results", "0"])
    plan = work_off(make_plan(ada, first, act(2, "b", tool="dangerous", dependencies=[1])))
    change(plan, add=[act(3, "c", dependencies=[1, 2]), act(5, "e", dependencies=[3])])
    change(plan, edit=[{"step_id": 3, "dependencies": [1], "parameters": {"value": "${x}!"}}], remove=[5])
    assert list(step_documents(plan)) == [1, 2, 3]
    assert work_off(plan).status == "in_progress"
    assert (step_of(plan, 3).status, stage.values("safe")) == ("completed", ["a", "a!"])
    assert [kind for kind in events_of(plan) if kind == "plan.changed"] == ["plan.changed"] * 2
    assert_gapless(plan)


def test_goal_changes(stage, ada):
    plan = make_plan(ada, act(1), start=False)
    assert change(plan, goal="Try something else").goal == "Try something else"
    assert plan.events.get(type="plan.changed").data_json == {"by": "Ada", "goal": True}
    assert problems(plan, goal=" ") == [("goal", "blank")]


def test_step_depending_on_finished_steps_becomes_ready(stage, ada):
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous"), act(3, "late", dependencies=[2])))
    change(plan, edit=[{"step_id": 3, "dependencies": [1]}], add=[act(4, "new")])
    assert (step_of(plan, 3).dependencies_left, step_of(plan, 3).ready_at is None) == (0, False)
    work_off(plan)
    assert stage.values("safe") == [None, "late", "new"]
    waiting = make_plan(ada, act(1), start=False)
    change(waiting, add=[act(2)])
    assert not waiting.steps.exclude(ready_at=None).exists()


def test_ready_step_can_get_dependencies(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    change(plan, add=[act(2)])
    change(plan, edit=[{"step_id": 2, "dependencies": [1]}])
    assert (step_of(plan, 2).dependencies_left, step_of(plan, 2).ready_at) == (1, None)
    assert (work_off(plan).status, stage.played) == ("in_progress", [])


@pytest.mark.parametrize("kind", ["edit", "remove"])
def test_changing_started_step_is_conflict(stage, ada, kind):
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous"), act(3, dependencies=[2])))
    before = step_documents(plan)
    for number in (1, 2):
        wrong: Any = {kind: [number if kind == "remove" else {"step_id": number, "description": "x"}]}
        with pytest.raises(Conflict, match=f"Step {number}"):
            change(plan, add=[act(9)], **wrong)
    assert step_documents(plan) == before


WRONG_CHANGES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"remove": [2]}, [("remove.0", "unknown_dependency")]),
    ({"remove": [7]}, [("remove.0", "unknown_step")]),
    ({"remove": [3, 3]}, [("remove.1", "duplicate_step_id")]),
    ({"edit": [{"description": "x"}]}, [("edit.0.step_id", "required")]),
    ({"edit": [{"step_id": 3, "colour": 1}]}, [("edit.0.colour", "unknown_field")]),
    ({"edit": [{"step_id": 3, "status": "completed"}]}, [("edit.0.status", "run_time_field")]),
    (
        {"edit": [{"step_id": 3, "dependencies": [4]}], "add": [act(4, dependencies=[3])]},
        [("edit.0.dependencies", "circular_dependency")],
    ),
    ({"edit": [{"step_id": 3, "parameters": {"value": "${z}"}}]}, [("edit.0.parameters.value", "unknown_reference")]),
    ({"add": [act(2)]}, [("add.0.step_id", "duplicate_step_id")]),
    (
        {"add": [act(4, tool="none_such"), act(5, dependencies=[9])]},
        [("add.0.tool", "unknown_tool"), ("add.1.dependencies.0", "unknown_dependency")],
    ),
    ({"add": [act(number) for number in range(4, 503)]}, [("add", "maxItems")]),
    ({"remove": [2, 3]}, [("remove", "minItems")]),
]


def test_problems_have_paths_into_the_change(stage, ada):
    plan = make_plan(ada, act(2), act(3, dependencies=[2]), start=False)
    for fields, found in WRONG_CHANGES:
        assert problems(plan, **fields) == found


def test_existing_problems_do_not_block_change(stage, ada):
    """A tool may be withdrawn after its step was stored."""
    plan = make_plan(ada, act(1), act(2, tool="keeping", dependencies=[1]), start=False)
    plan.steps.filter(step_id=2).update(tool="gone")
    change(plan, add=[act(3)])
    assert problems(plan, edit=[{"step_id": 2, "description": "Still gone"}]) == [("edit.0.tool", "unknown_tool")]


def test_new_steps_may_refer_to_memory(stage, ada):
    plan = work_off(make_plan(ada, act(1, "a", expected_key="x"), act(2, tool="dangerous"), memory={"who": "you"}))
    change(plan, add=[act(3, "${x.success} ${who}")])
    work_off(plan)
    assert stage.values("safe")[-1] == "true you"


def test_step_ids_are_not_reused(stage, ada):
    plan = make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1]))
    change(plan, remove=[2])
    assert problems(plan, add=[act(2)]) == [("add.0.step_id", "step_id_used")]
    joined = Rest(ada).post("calls/", {"tool": "safe", "arguments": {}, "plan": plan.public_id}).json()
    assert joined["step_id"] == 3


def test_removing_last_open_step_ends_plan(stage, ada):
    plan = make_plan(ada, act(1), act(2))
    stage.acts["safe"] = lambda value, context: pause_plan(plan, by=Requester(ada))
    work = loop.claim_work(plan.pk, owner="tests")
    assert work is not None
    assert loop.advance(work, TimeSlice("tests")) is None
    change(plan, remove=[2])
    assert (plan.status, events_of(plan)[-2:]) == ("completed", ["plan.changed", "plan.completed"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"can_modify": False}, "can_modify false"), ({"status": "failed"}, "ended"), ({"kind": "call"}, "single call")],
)
def test_plan_that_cannot_be_changed_is_conflict(stage, ada, fields, words):
    plan = make_plan(ada, act(1))
    Plan.objects.filter(pk=plan.pk).update(**fields)
    with pytest.raises(Conflict, match=words):
        change(plan, add=[act(2)])


def test_change_by_someone_else_is_conflict(stage, ada):
    plan = make_plan(ada, act(1), act(2, tool="dangerous", dependencies=[1]))
    seen = plan.events.count()
    work_off(plan)
    change(plan, add=[act(3)], seen_seq=seen)
    with pytest.raises(Conflict):
        change(plan, add=[act(4)], seen_seq=seen)


def test_person_who_changes_step_cannot_approve_it(stage, ada, admin):
    admin.groups.add(Group.objects.get(name="reviewer"))
    plan = make_plan(ada, act(1, tool="dangerous"), act(2, tool="dangerous"), start=False)
    change(plan, by=admin, edit=[{"step_id": 1, "parameters": {"value": "worse"}}])
    Rest(ada).post(f"plans/{plan.public_id}/start/")
    work_off(plan)
    answer = Decision(ReviewVerdict.APPROVE, request_of(plan, 1).digest)
    with pytest.raises(NotAllowed):
        decide(request_of(plan, 1), by=admin, decision=answer)
    decide(request_of(plan, 2), by=admin, decision=Decision(ReviewVerdict.APPROVE, request_of(plan, 2).digest))


def test_call_added_to_plan_cannot_be_changed(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    Rest(ada).post("calls/", {"tool": "safe", "arguments": {"value": "asked"}, "plan": plan.public_id})
    assert (step_of(plan, 2).status, step_of(plan, 2).attempt) == ("pending", 0)
    for wrong in ({"edit": [{"step_id": 2, "parameters": {"value": "else"}}]}, {"remove": [2]}):
        with pytest.raises(Conflict, match="Step 2"):
            change(plan, **wrong)
    work_off(plan)
    assert stage.values("safe") == ["asked"]


def test_change_over_rest(stage, ada, ben, admin):
    plan = make_plan(ada, act(1), start=False)
    path = f"plans/{plan.public_id}/"
    answer = Rest(ada).patch(path, {"add": [act(2, dependencies=[1])], "seen_seq": 1})
    assert (answer.status_code, [each["step_id"] for each in answer.json()["steps"]]) == (200, [1, 2])
    assert Rest(admin).patch(path, {"remove": [2]}).status_code == 200
    assert Rest(ben).patch(path, {"remove": [1]}).status_code == 403
    refused = Rest(ada).patch(path, {"add": [act(3, tool="none_such")]})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["add.0.tool"])
    bodies: list[Any] = [
        {},
        [],
        {"steps": []},
        {"remove": ["1"]},
        {"add": {}},
        {"edit": [1]},
        {"seen_seq": -1, "goal": "x"},
    ]
    for body in bodies:
        assert Rest(ada).patch(path, body).status_code == 422
    Plan.objects.filter(pk=plan.pk).update(can_modify=False)
    assert Rest(ada).patch(path, {"goal": "No"}).status_code == 409


def test_agent_changes_only_its_own_plan(stage, ada, ben):
    client = agent(ada, "plans:read", "plans:write")
    plan = client.post("plans/", {"goal": "Try", "steps": [act(1)], "start": False}).json()["id"]
    assert client.patch(f"plans/{plan}/", {"add": [act(2)]}).status_code == 200
    assert agent(ada, "plans:read", "plans:write").patch(f"plans/{plan}/", {"remove": [1]}).status_code == 404


@pytest.fixture
def at_the_judgement(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run hooks while a change is validated; return whether the plan was locked each time."""
    acts: list[Any] = []
    problems_of = create.check_document

    def judge(document: Any, **more: Any) -> Any:
        if acts and callable(acts[-1]):
            acts.pop()()
        acts.insert(0, getattr(transactions._thread_state, "tx", None) is not None)
        return problems_of(document, **more)

    monkeypatch.setattr(create, "check_document", judge)
    return acts


def test_plan_is_validated_before_it_is_locked(stage, ada, at_the_judgement):
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    at_the_judgement.clear()
    change(plan, edit=[{"step_id": 2, "description": "Other"}])
    assert set(at_the_judgement) == {False}


@pytest.mark.parametrize("number", [1, 2])
def test_step_started_during_validation_is_conflict(stage, ada, at_the_judgement, number):
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    at_the_judgement[:] = [lambda: loop.claim_work(plan.pk, owner="tests")]
    if number == 1:
        with pytest.raises(Conflict, match="Step 1"):
            change(plan, edit=[{"step_id": 1, "description": "Other"}])
        return
    change(plan, edit=[{"step_id": 2, "description": "Other"}])
    assert (step_documents(plan)[2]["description"], set(at_the_judgement)) == ("Other", {False, True})


def test_step_added_during_validation_is_kept(stage, ada, at_the_judgement):
    plan = make_plan(ada, act(1, tool="dangerous"))
    call = CallOrder("safe", {"value": "x"}, plan_ref=plan.public_id)
    at_the_judgement.append(lambda: create_call(call, by=Requester(ada)))
    with pytest.raises(PlanProblems) as refused:
        change(plan, add=[act(2)])
    assert [(problem.path, problem.code) for problem in refused.value.problems] == [
        ("add.0.step_id", "duplicate_step_id")
    ]
    seen = Plan.objects.get(pk=plan.pk).last_seq
    at_the_judgement.append(lambda: change(plan, goal="Theirs"))
    with pytest.raises(Conflict):
        change(plan, goal="Mine", seen_seq=seen)
    assert Plan.objects.get(pk=plan.pk).goal == "Theirs"
