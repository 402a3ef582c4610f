"""Revealing a secret in the browser: one press, in its place, and the rest of the page stays."""

import pytest
from playwright.sync_api import expect

from tests.builders import make_plan, request_of, step, work_off
from tests.plans.secret_tools import PASSWORD

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_secret_is_revealed_where_it_stands(keepers, page_as, ada, rosa):
    """The value has the focus, so that it is read out, and no other secret shows."""
    given = {"host": "db1", "password": PASSWORD, "note": {"key": "use ghp_" + "a1" * 18 + " now"}}
    held = request_of(work_off(make_plan(ada, step(1, "wipe", parameters=given))))
    page = page_as(rosa)
    page.goto(f"/approvals/?item={held.public_id}")
    expect(page.get_by_text(PASSWORD)).to_have_count(0)
    page.get_by_role("button", name="Reveal the secret at password").click()
    expect(page.get_by_text(PASSWORD, exact=True)).to_be_focused()
    expect(page.get_by_role("button", name="Reveal the secret at note.key")).to_be_visible()
    expect(page.get_by_text("ghp_a1")).to_have_count(0)
