"""A plan with an agent on its page: the agent's work under its step, its words for who may read them."""

import pytest

from plans.agents.definitions import ToolFilter
from plans.agents.tool_calls import NOT_OFFERED
from plans.web.fragments import _render_plan
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
    """Return a plan whose agent waits for an approval, before a step that waits for the agent."""
    make_agent()
    script.says(calls(*WANTED, text=THOUGHT))
    return work_off(agent_plan(ada, agent_step(), act(2, dependencies=[1])))


def open_page(viewer, plan, more=""):
    """Return the page of the plan as this person sees it."""
    pages = Pages(viewer)
    pages.open(f"/plans/{plan.public_id}/{more}")
    return pages


def test_what_an_agent_calls_stands_under_its_step(plan):
    """In the timeline; the graph and the numbers have the steps that somebody wrote."""
    picture = load_overview(plan)
    assert [(each.number, each.parent, each.before) for each in picture.steps] == [
        (1, None, None), (3, 1, 2), (4, 1, 2), (5, 1, 2), (2, None, None),
    ]  # fmt: skip
    assert picture.finished == 0
    drawing = graph_drawing(picture)
    assert drawing is not None
    assert [(box.step_id, box.tool) for box in drawing.boxes] == [(1, "ann, 2 calls"), (2, "safe")]


def test_what_an_agents_step_waits_for_is_said(plan, script, rosa):
    """Its model, or so many calls; for people where one of them does."""
    agent = load_overview(plan).by_number[1]
    assert (agent.label, agent.word.hue, agent.calls) == ("Waits for a call", "human", 2)
    script.says(ANSWER)
    approve(plan, rosa, 4)
    work_off(plan)
    assert load_overview(plan).by_number[1].label == "Done"


def test_a_plan_works_while_its_agents_calls_do(plan):
    """An agent that waits for people works as little as any step that does."""
    picture = load_overview(plan)
    assert [bar.kind for bar in picture.timeline.bars if bar.step_id == 1] == ["agent"]
    assert picture.working_ms < 60_000


def test_a_call_that_failed_is_not_looked_at_first(script, stage, ada):
    """What came of it is the agent's to hear."""
    make_agent()
    script.says(calls(("safe", {"no_such_argument": 1})), ANSWER)
    plan = work_off(agent_plan(ada))
    assert plan.steps.get(step_id=3).status == "failed"
    assert default_step(load_overview(plan)) == 1


def test_the_history_names_the_agent(plan):
    """Nobody changed the plan."""
    said = [event_line(event).said.text for event in plan.events.filter(type="plan.changed").order_by("seq")]
    assert said == ["The agent ann asks its model in step 3", "The agent ann called steps 4, 5"]


@pytest.mark.parametrize("name", ["ada", "rosa", "admin"])
def test_the_work_is_read_by_who_may_see_private_values(plan, script, request, rosa, name):
    """What the model said, what it called, and the way to what waits."""
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
def test_onlookers_see_no_text_of_an_agent(plan, script, request, rosa, name):
    """On no card, nor in the part of the page that is drawn for everyone."""
    script.says(ANSWER)
    approve(plan, rosa, 4)
    work_off(plan)
    viewer = request.getfixturevalue(name)
    for more in ("", *(f"?step={number}&tab={tab}" for number in range(1, 7) for tab in ("details", "output"))):
        html = open_page(viewer, plan, more).html
        assert (THOUGHT in html, ANSWER in html) == (False, False), more
    assert not [part for part in _render_plan(plan.public_id).fragments.values() if THOUGHT in part or ANSWER in part]


def test_the_card_of_a_call_leads_to_its_agent(plan, ada):
    """It says what the model said with it, and offers to skip it; it is not retried by itself."""
    pages = open_page(ada, plan, "?step=4")
    assert 'id="step" data-step="4"' in pages.html
    assert '<a href="?step=1">step 1</a>' in pages.html
    assert THOUGHT in pages.html
    assert ['id="skip"' in pages.html, 'id="retry-step"' in pages.html] == [True, False]
    assert 'id="skip"' not in open_page(ada, plan, "?step=3").html


def test_new_calls_come_into_the_page(plan, script, rosa):
    """As rows before the next step, and the card of the agent's step is asked for again."""
    before = _render_plan(plan.public_id).fragments
    script.says(ANSWER)
    approve(plan, rosa, 4)
    work_off(plan)
    after = _render_plan(plan.public_id).fragments
    assert after.keys() - before.keys() >= {"s6", "look-6"}
    assert 'data-before="s2"' in after["s6"]
    assert after["look-1"] != before["look-1"]


def test_the_list_of_plans_counts_the_steps_that_were_written(plan, ada):
    """An agent that calls much makes no plan look far behind."""
    pages = Pages(ada)
    pages.open("/plans/")
    assert "0 of 2" in pages.html


@pytest.mark.parametrize("name", ["ada", "vera"])
def test_calls_that_were_refused_are_shown_with_why(script, ada, vera, request, name):
    """They have no step; those that were made stand beside them. Who may not read the model's words reads none."""
    make_agent("bob", tools=ToolFilter(names=["safe"]))
    unreadable = {"id": "c9", "tool": "safe", "arguments": {"text": "{"}, "problem": "Its arguments are no JSON."}
    wanted = calls(("safe", {"value": 1}), ("dangerous", {"value": 2}), ("<b>odd", {}))
    wanted["calls"] = [unreadable, *wanted["calls"]]
    script.says(wanted, ANSWER)
    plan = work_off(agent_plan(ada, agent_step(name="bob")))
    pages = open_page(request.getfixturevalue(name), plan, "?step=1")
    told = (unreadable["problem"], NOT_OFFERED.format(tool="dangerous"), "&lt;b&gt;odd")
    assert [each in pages.html for each in told] == [name == "ada"] * 3
    assert "<b>odd" not in pages.html
