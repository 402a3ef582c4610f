"""A plan's page between two messages of its socket, and where it leads the eye."""

import pytest
from playwright.sync_api import Page, expect

from plans import engine
from tests.browser.conftest import PageAs
from tests.builders import act, make_plan, work_off

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]


def extent(page: Page, bar: str) -> tuple[float, float]:
    """Return where a bar of the timeline begins and how wide it is, in percent."""
    x, width = page.locator(bar).evaluate("bar => ['x', 'width'].map(name => parseFloat(bar.getAttribute(name)))")
    return x, width


def test_the_bar_of_a_running_step_and_its_time_go_on(ada, stage, page_as: PageAs):
    """What is over shrinks beside it, and the axis with it; nothing comes from the server."""
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    run = engine.claim(plan.pk, owner="tests")
    assert run is not None
    engine.advance(run, engine.Turn("tests"))
    page = page_as(ada)
    page.clock.install()
    page.goto(f"/plans/{plan.public_id}/")
    working = page.locator("#standing time").last
    said = working.inner_text()
    before = extent(page, "#s2 .bar"), extent(page, "#s1 .bar")
    page.clock.run_for(30_000)
    after = extent(page, "#s2 .bar"), extent(page, "#s1 .bar")
    assert after[0][0] < before[0][0] and after[0][1] > before[0][1] and sum(after[0]) == pytest.approx(94)
    assert after[1][1] <= before[1][1]
    expect(working).not_to_have_text(said)


def test_the_step_that_the_address_names_is_in_sight_with_its_card(ada, stage, page_as: PageAs):
    """Beside its row on a desk; before all else where there is no room beside it."""
    plan = work_off(make_plan(ada, *(act(number, tool="dangerous") for number in range(1, 41))))
    page = page_as(ada, viewport={"width": 1440, "height": 900})
    page.goto(f"/plans/{plan.public_id}/?step=38")
    expect(page.locator("#s38")).to_be_in_viewport()
    expect(page.locator("#review")).to_be_in_viewport()
    page.set_viewport_size({"width": 1100, "height": 900})
    page.goto(f"/plans/{plan.public_id}/?step=38")
    expect(page.locator("#review")).to_be_in_viewport()
