"""An agent's work on the page of its plan, in a browser: what is sent while it works goes where it belongs."""

import pytest
from playwright.sync_api import Page, expect

from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.models import Plan
from plans.web.fragments import PlanRenderer, model_output_fragment
from tests.browser.conftest import PageAs
from tests.builders import act, approve, work_off
from tests.plans.agents.scripted import Script, agent_plan, agent_step, calls, make_agent
from tests.plans.conftest import script  # noqa: F401 - a fixture

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
ROWS = "[...document.querySelectorAll('#steps > a')].map((row) => row.dataset.step)"
FRAGMENTS = """performance.getEntriesByType("resource").find((each) => each.name.includes("/fragments.")).name"""
APPLY = f"""async (fragments) => (await import({FRAGMENTS})).apply(fragments)"""
FORGET = f"""async () => (await import({FRAGMENTS})).forgetSaid()"""

DRAW_ANEW = """htmx.ajax("GET", location.pathname + "?step=1", {target: "#step", swap: "outerHTML"})"""


def send(page: Page, plan: Plan) -> None:
    """Put into the page what its socket would send now."""
    page.evaluate(APPLY, list(PlanRenderer(plan.public_id)().fragments.values()))


def test_the_work_of_an_agent_is_seen_as_it_happens(script: Script, ada, rosa, page_as: PageAs):  # noqa: F811
    """The rows of its calls under its step, its answer; a folded list stays folded."""
    make_agent()
    script.says(calls(("dangerous", {"value": 1}), text="I ask first."))
    plan = work_off(agent_plan(ada, agent_step(), act(2, dependencies=[1])))
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/?step=1")
    expect(page.locator("#work blockquote")).to_have_text("I ask first.")
    page.evaluate(APPLY, [model_output_fragment(1, "Said too late")])
    expect(page.locator("#work-now .verbatim")).to_be_hidden()
    assert page.evaluate(ROWS) == ["1", "3", "4", "2"]
    page.locator("#work > summary").click()
    script.says("Jo agreed.")
    approve(plan, rosa, 4)
    work_off(plan)
    send(page, plan)
    expect(page.locator("#to-answer")).to_be_visible()
    assert page.evaluate(ROWS) == ["1", "3", "4", "5", "2"]
    expect(page.locator("#work")).not_to_have_attribute("open", "")
    page.locator("#calls-shown").uncheck()
    expect(page.locator("#s5")).to_be_hidden()
    expect(page.locator("#s2")).to_be_visible()
    page.locator("#to-answer").click()
    expect(page.locator("#agent-answer")).to_have_text("Jo agreed.")


@pytest.mark.layout
def test_what_was_said_stays_when_its_part_is_drawn_anew(script: Script, ada, page_as: PageAs):  # noqa: F811
    """Also what came before there was a place for it; not once the turn is over, nor after the connection was lost."""
    make_agent()
    plan = agent_plan(ada)
    page = page_as(ada)
    page.goto(f"/plans/{plan.public_id}/?step=1")
    page.evaluate(APPLY, [model_output_fragment(1, "Now I think")])
    expect(page.locator("#work-now")).to_have_count(0)
    turn = loop.claim_work(plan.pk, owner="tests")
    assert turn is not None
    for _ in range(2):
        page.evaluate(DRAW_ANEW)
        expect(page.locator("#work-now")).to_have_text("Now I think")
    page.evaluate(FORGET)
    page.evaluate(DRAW_ANEW)
    expect(page.locator("#work-now .verbatim")).to_be_hidden()
    page.evaluate(APPLY, [model_output_fragment(1, "So far")])
    expect(page.locator("#work-now")).to_have_text("So far")
    script.says("Jo agreed.")
    loop.advance(turn, TimeSlice("tests"))
    page.evaluate(DRAW_ANEW)
    expect(page.locator("#work blockquote")).to_have_text("Jo agreed.")
    expect(page.locator("#work-now .verbatim")).to_be_hidden()
