"""A plan stuck at an approval: its page says on whom it waits, has them reminded, and goes on once they agree."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import press_approve
from tests.builders import make_plan, step, write_step

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def test_reviewer_is_reminded_approves_and_the_plan_goes_on(ada, rosa, window_of, served):
    operator, reviewer = window_of(ada), window_of(rosa)
    later = step(2, dependencies=[1])
    plan = make_plan(ada, write_step(1, "note.txt", "Approved bytes\n"), later, start=False)
    operator.goto(f"/plans/{plan.public_id}/")
    expect(operator.locator("#forecast")).to_contain_text("Step 1 waits for approval by Rosa.")
    watcher = window_of(ada)
    watcher.goto(f"/plans/{plan.public_id}/")
    expect(watcher.locator("#live")).to_contain_text("Live")
    operator.locator("#start").click()
    sentence = operator.locator("#sentence")
    expect(sentence).to_contain_text("Waiting for Rosa to approve step 1")
    expect(sentence).to_contain_text("1 step waits behind it.")
    expect(operator.locator("#s1")).to_contain_text("Waiting for Rosa")
    expect(watcher.locator("#forecast")).to_have_count(0)
    expect(watcher.locator("#next-remind")).to_be_visible()
    operator.locator("#next-remind").click()
    expect(operator.locator("body")).to_contain_text("The reviewers were reminded.")
    expect(operator.locator("#next-review")).to_contain_text("Open request")
    expect(watcher.locator("#next-remind")).to_have_count(0)
    operator.evaluate("window.neverReloaded = true")
    reviewer.goto(f"/plans/{plan.public_id}/")
    expect(reviewer.locator("#controls")).to_contain_text("You can approve it.")
    reviewer.locator("#next-review").click()
    press_approve(reviewer)
    expect(operator.locator(".plan-head")).to_contain_text("Done")
    expect(sentence).to_have_count(0)
    assert operator.evaluate("window.neverReloaded") is True
