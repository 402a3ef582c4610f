"""Tests of agents' work on the plan's page."""

import pytest

from plans.agents.definitions import ToolFilter
from plans.agents.tool_calls import NOT_OFFERED
from plans.web.fragments import PlanRenderer
from plans.web.plan.history import event_line
from plans.web.plan.overview import graph_drawing, load_overview
from plans.web.plan.step_detail import default_step
from tests.builders import act, approve, request_of, work_off
from tests.pages import Pages
from tests.plans.agents.scripted import agent_plan, agent_step, calls, make_agent

THOUGHT, ANSWER = "I ask Jo first.", "Jo agreed."
WANTED = (("dangerous", {"value": 1}), ("safe", {"value": 2}))


@pytest.fixture
def plan(script, ada):
    """Return a plan with an agent that waits for approval, and a step that depends on it."""
    make_agent()
    script.says(calls(*WANTED, text=THOUGHT))
    return work_off(agent_plan(ada, agent_step(), act(2, dependencies=[1])))


def open_page(viewer, plan, more=""):
    """Return the plan's page for this person."""
    pages = Pages(viewer)
    pages.open(f"/plans/{plan.public_id}/{more}")
    return pages


def test_agents_calls_are_listed_below_its_step(plan):
    picture = load_overview(plan)
    assert [(each.number, each.parent, each.before) for each in picture.steps] == [
        (1, None, None), (3, 1, 2), (4, 1, 2), (5, 1, 2), (2, None, None),
    ]  # fmt: skip
    assert picture.finished == 0
    drawing = graph_drawing(picture)
    assert drawing is not None
    assert [(box.step_id, box.tool) for box in drawing.boxes] == [(1, "ann, 2 calls"), (2, "safe")]


def test_label_says_what_agent_waits_for(plan, script, rosa):
    agent = load_overview(plan).by_number[1]
    assert (agent.label, agent.word.hue, agent.calls) == ("Waiting for 1 call", "human", 2)
    script.says(ANSWER)
    approve(plan, rosa, 4)
    work_off(plan)
    assert load_overview(plan).by_number[1].label == "Done"


def test_plan_works_while_agents_calls_work(plan):
    picture = load_overview(plan)
    assert [bar.kind for bar in picture.timeline.bars if bar.step_id == 1] == ["agent"]
    assert picture.working_ms < 60_000


def test_failed_call_of_agent_is_not_opened_first(script, stage, ada):
    make_agent()
    script.says(calls(("safe", {"no_such_argument": 1})), ANSWER)
    plan = work_off(agent_plan(ada))
    assert plan.steps.get(step_id=3).status == "failed"
    assert default_step(load_overview(plan)) == 1


def test_history_names_agent(plan):
    events = [event_line(event).said.text for event in plan.events.filter(type="plan.changed").order_by("seq")]
    assert events == ["The agent ann asks its model in step 3", "The agent ann added steps 4, 5"]


@pytest.mark.parametrize("name", ["ada", "rosa", "admin"])
def test_work_is_shown_to_viewers_of_private_values(plan, script, request, rosa, name):
    viewer = request.getfixturevalue(name)
    pages = open_page(viewer, plan, "?step=1")
    assert THOUGHT in pages.html
    assert f"/approvals/?item={request_of(plan, 4).public_id}" in pages.html
    assert 'id="agent-text-1"' in pages.html
    script.says(ANSWER)
    approve(plan, rosa, 4)
    work_off(plan)
    assert ANSWER in open_page(viewer, plan, "?step=1&tab=output").html


@pytest.mark.parametrize("name", ["vera", "ben"])
def test_viewers_see_no_text_of_agent(plan, script, request, rosa, name):
    script.says(ANSWER)
    approve(plan, rosa, 4)
    work_off(plan)
    viewer = request.getfixturevalue(name)
    for more in ("", *(f"?step={number}&tab={tab}" for number in range(1, 7) for tab in ("details", "output"))):
        html = open_page(viewer, plan, more).html
        assert (THOUGHT in html, ANSWER in html) == (False, False), more
    assert not [part for part in PlanRenderer(plan.public_id)().fragments.values() if THOUGHT in part or ANSWER in part]


def test_card_of_call_links_to_its_agent(plan, ada):
    pages = open_page(ada, plan, "?step=4")
    assert 'id="step" data-step="4"' in pages.html
    assert '<a href="?step=1">step 1</a>' in pages.html
    assert THOUGHT in pages.html
    assert ['id="skip"' in pages.html, 'id="retry-step"' in pages.html] == [True, False]
    assert 'id="skip"' not in open_page(ada, plan, "?step=3").html


def test_new_calls_are_sent_to_page(plan, script, rosa):
    before = PlanRenderer(plan.public_id)().fragments
    script.says(ANSWER)
    approve(plan, rosa, 4)
    work_off(plan)
    after = PlanRenderer(plan.public_id)().fragments
    assert after.keys() - before.keys() >= {"s6", "look-6"}
    assert 'data-before="s2"' in after["s6"]
    assert after["look-1"] != before["look-1"]


def test_list_counts_only_submitted_steps(plan, ada):
    pages = Pages(ada)
    pages.open("/plans/")
    assert "0 of 2" in pages.html


@pytest.mark.parametrize("name", ["ada", "vera"])
def test_refused_calls_are_shown_with_reason(script, ada, vera, request, name):
    make_agent("bob", tools=ToolFilter(names=["safe"]))
    unreadable = {"id": "c9", "tool": "safe", "arguments": {"text": "{"}, "problem": "Its arguments are no JSON."}
    turn = calls(("safe", {"value": 1}), ("dangerous", {"value": 2}), ("<b>odd", {}))
    turn["calls"] = [unreadable, *turn["calls"]]
    script.says(turn, ANSWER)
    plan = work_off(agent_plan(ada, agent_step(name="bob")))
    pages = open_page(request.getfixturevalue(name), plan, "?step=1")
    told = (unreadable["problem"], NOT_OFFERED.format(tool="dangerous"), "&lt;b&gt;odd")
    assert [each in pages.html for each in told] == [name == "ada"] * 3
    assert "<b>odd" not in pages.html
