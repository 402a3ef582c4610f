"""Tests that texts of agents are as private as the data they are based on."""

import pytest

from approvals.web.review.inbox import inbox_list
from catalog.calls.privacy import PRIVATE_MARKER, PRIVATE_NOTICE
from catalog.context import ToolContext
from plans.actions.clone import clone_plan
from plans.actions.skip import skip_step
from plans.agents.loop import TOO_MANY_ROUNDS
from plans.models import Agent
from plans.planner.compose_reply import DONE_BY_AGENT, reply_prompt
from plans.store.privacy import hidden_parts
from plans.store.requesters import Requester
from tests.builders import act, step_of, work_off
from tests.conftest import person
from tests.plans.agents.scripted import agent_plan, agent_step, calls, make_agent
from tests.rest import Rest

SECRET = "jo@example.org"
SAID, WROTE = f"I look {SECRET} up.", f"Jo is {SECRET}."


@pytest.fixture
def plan(script, ada):
    """Return a plan whose agent wrote private text, called two tools with it, and had one call skipped."""
    make_agent()
    script.says(calls(("safe", {"value": SECRET}), ("dangerous", {"value": SECRET}), text=SAID), WROTE)
    step = agent_step(expected_key="told", output_path=["results", "0"], parameters={"for": "the desk"})
    behind = act(2, {"to": "Dear ${told}"}, dependencies=[1], expected_key="sent")
    made = work_off(agent_plan(ada, step, behind, act(3, "plain", expected_key="plain")))
    skip_step(made, 6, "By hand.", by=Requester(ada))
    return work_off(made)


def texts_of(rest, plan):
    """Return the texts of every API path that shows the plan."""
    refs = plan.steps.filter(call__isnull=False).values_list("call__public_id", flat=True)
    paths = [f"plans/{plan.public_id}/{part}" for part in ("", "memory/", "events/")]
    answers = [rest.get(path) for path in (*paths, *(f"calls/{ref}/" for ref in refs))]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.content.decode() for answer in answers]


def test_plan_is_set_up_as_needed(plan):
    assert plan.status == "completed"
    assert [each.tool for each in plan.steps.filter(parent__isnull=False)] == [
        "agent_turn", "safe", "dangerous", "agent_turn",
    ]  # fmt: skip


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_viewers_see_no_text_of_agent(plan, role):
    texts = texts_of(Rest(person("other", role)), plan)
    assert not [text for text in texts if SECRET in text]
    assert [PRIVATE_MARKER in text or PRIVATE_NOTICE in text for text in texts[:2]] == [True, True]


@pytest.mark.parametrize("role", ["reviewer", "administrator"])
def test_reviewers_and_administrators_see_everything(plan, role):
    for rest in (Rest(person("other", role)), Rest(plan.author)):
        body = rest.get(f"plans/{plan.public_id}/").json()["steps"]
        assert [each["description"] for each in body if each["parent"]] == [
            "Turn 1 of ann",
            SAID,
            SAID,
            "Turn 2 of ann",
        ]
        assert body[4]["parameters"] == {"value": SECRET}


def test_input_of_agent_is_not_private(plan):
    body = Rest(person("other", "operator")).get(f"plans/{plan.public_id}/").json()["steps"]
    assert (body[0]["parameters"], body[0]["description"]) == ({"for": "the desk"}, "Step 1")
    assert (body[2]["parameters"], body[2]["description"]) == ({"value": "plain"}, "Step 3")


def test_agent_with_private_input_is_private(script, stage, ada):
    make_agent()
    look = act(1, {"email": SECRET}, "private", expected_key="found")
    step = agent_step(2, parameters={"who": "${found}", "why": "plain"}, dependencies=[1], expected_key="told")
    script.says(WROTE)
    plan = work_off(agent_plan(ada, look, step))
    hidden = hidden_parts(person("other", "operator"), plan)
    assert (hidden.steps[2].names, hidden.steps[2].everything) == (frozenset({"who"}), False)
    assert hidden.keys == {"found", "told"}


def test_reason_of_failure_is_masked_but_usage_is_not(script, ada):
    make_agent(budget={"rounds": 1})
    script.says(calls(("safe", {"value": SECRET})))
    plan = work_off(agent_plan(ada))
    body = Rest(person("other", "operator")).get(f"plans/{plan.public_id}/").json()["steps"][0]
    assert (body["error"], body["agent_run"]["stopped_for"], body["agent_run"]["rounds"]) == (
        PRIVATE_NOTICE,
        "rounds",
        1,
    )
    assert TOO_MANY_ROUNDS in step_of(plan).error


def test_clone_by_viewer_has_no_work_of_agent(plan):
    Agent.objects.update(enabled=True)
    copy = clone_plan(plan, by=Requester(person("other", "operator")))
    assert [each.description for each in copy.steps.all()] == ["Step 1", "Step 2", "Step 3"]


def test_reply_uses_only_final_text_of_agent(plan):
    prompt = reply_prompt(ToolContext(plan_id=plan.public_id))
    assert WROTE in prompt
    assert [word in prompt for word in ("agent_turn", SAID, "Step 5")] == [False] * 3


@pytest.fixture
def composer(settings):
    """Set the model that composes replies."""
    settings.TOOLGATE_MODEL = "openai:scripted"


@pytest.mark.usefixtures("composer")
@pytest.mark.parametrize(("model", "tool", "is_told"), [
    ("other:model", "private", False),
    ("other:model", "safe", True),
    ("", "private", True),
    ("openai:scripted", "private", True),
])  # fmt: skip
def test_text_of_other_model_about_private_results_is_withheld(script, ada, model, tool, is_told):
    make_agent(model=model)
    script.says(calls((tool, {"value": SECRET})), WROTE)
    step = agent_step(expected_key="told", output_path=["results", "0"])
    plan = work_off(agent_plan(ada, step, act(2, {"value": "${told}"}, "safe", dependencies=[1])))
    assert plan.status == "completed"
    prompt = reply_prompt(ToolContext(plan_id=plan.public_id))
    assert (SECRET in prompt, DONE_BY_AGENT in prompt) == (is_told, not is_told)


@pytest.mark.usefixtures("composer")
def test_text_of_other_model_about_private_input_is_withheld(script, ada):
    make_agent(model="other:model")
    script.says(WROTE)
    look = act(1, {"email": SECRET}, "private", expected_key="found")
    plan = work_off(agent_plan(ada, look, agent_step(2, parameters={"who": "${found}"}, dependencies=[1])))
    prompt = reply_prompt(ToolContext(plan_id=plan.public_id))
    assert (SECRET in prompt, DONE_BY_AGENT in prompt) == (False, True)


@pytest.mark.parametrize(("role", "reads"), [("reviewer", True), ("administrator", True), ("viewer", False)])
def test_queue_shows_summary_of_agents_call_to_reviewers_only(script, ada, workspace, role, reads):
    make_agent()
    script.says(calls(("write_file", {"path": "notes.txt", "content": "Hello"})))
    work_off(agent_plan(ada))
    (listed,) = inbox_list(person(role, role)).requests
    assert listed.summary == ("Create notes.txt" if reads else "Run write_file")  # type: ignore[attr-defined] # set there
