"""The main job, in real browsers against a real server: a plan runs live, stops, and a person clears it elsewhere."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.browser.conftest import press_approve
from tests.builders import make_plan, step, step_of, write_step
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def start_writing(page: Page, author: User) -> Any:
    """Store a plan that writes a file, open its page and start it there."""
    plan = make_plan(author, step(1), write_step(2, "note.txt", "Approved bytes\n", dependencies=[1]), start=False)
    page.goto(f"/plans/{plan.public_id}/")
    expect(page.locator("#live")).to_contain_text("Live")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".plan-head")).to_contain_text("Waiting for approval")
    return plan


def test_a_reviewer_clears_it_by_keyboard_and_the_operator_sees_it_finish(ada, rosa, window_of, served):
    """Two people, two windows: one press of A, and the other page changes without a reload."""
    operator, reviewer = window_of(ada), window_of(rosa)
    start_writing(operator, ada)
    operator.evaluate("window.neverReloaded = true")
    reviewer.goto("/approvals/")
    expect(reviewer.locator("#detail h1")).to_contain_text("note.txt")
    press_approve(reviewer)
    expect(operator.locator(".plan-head")).to_contain_text("Done")
    assert operator.evaluate("window.neverReloaded") is True
    assert (served.effects / "workspace" / "note.txt").read_text() == "Approved bytes\n"


def test_all_of_it_works_without_scripts(ada, rosa, window_of, served):
    """Plain pages and plain forms: start, read, approve, look again."""
    operator, reviewer = window_of(ada, java_script_enabled=False), window_of(rosa, java_script_enabled=False)
    plan = make_plan(ada, write_step(1, "note.txt", "Approved bytes\n"), start=False)
    operator.goto(f"/plans/{plan.public_id}/")
    operator.get_by_role("button", name="Start").click()
    eventually(lambda: step_of(plan).waiting_for == "approval", what="the request")
    reviewer.goto("/approvals/")
    reviewer.get_by_role("link", name="note.txt").first.click()
    reviewer.get_by_role("button", name="Approve").click()
    eventually((served.effects / "workspace" / "note.txt").exists, what="the file")
    eventually(lambda: step_of(plan).status == "completed", what="the step")
    operator.reload()
    expect(operator.locator(".plan-head")).to_contain_text("Done")


@pytest.mark.layout
def test_a_part_that_goes_before_its_socket_has_opened_goes_quietly(ada, window_of, served):
    """A page swapped or left in that moment complains of nothing, and the other sockets stay."""
    page = window_of(ada)
    plan = make_plan(ada, step(1), start=False)
    page.goto(f"/plans/{plan.public_id}/")
    expect(page.locator("#live")).to_contain_text("Live")
    with page.expect_websocket() as opened:
        page.evaluate(
            """async (path) => {
            const part = document.createElement("div");
            const detail = { target: part };
            const swapped = () => document.dispatchEvent(new CustomEvent("htmx:oobAfterSwap", { detail }));
            part.dataset.live = path;
            document.body.append(part);
            swapped();
            await Promise.resolve();
            part.remove();
            swapped();
            }""",
            f"/ws/pages/plans/{plan.public_id}/",
        )
    eventually(lambda: page.title() and opened.value.is_closed(), what="the end of the socket")  # asking lets it go on
    expect(page.locator("#live")).to_contain_text("Live")
