"""The home page in a browser: the keys of the desk, and the list that follows."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from approvals.models import Review
from catalog.results import Preview
from tests.approvals.factories import ask
from tests.browser.conftest import PageAs, press_approve
from tests.browser.desk import asked, becomes
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


def test_requests_are_answered_in_place_with_the_keys_of_the_desk(ada: User, rosa: User, page_as: PageAs) -> None:
    """The bar gives only the answer that it shows, and the fourth request comes up when one is answered."""
    requests = [ask(ada, preview=Preview(f"Write {n}", "diff", before="", after="x\n")) for n in range(4)]
    page = page_as(rosa)
    page.goto("/")
    expect(page.locator("#live")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#detail")).to_have_attribute("data-shown", f"q-{requests[1].public_id}")
    page.locator("#note").fill("Not today.")
    page.locator("#note").press("Control+Enter")
    expect(page.locator(".toast")).to_contain_text("Nothing was sent")
    page.locator("#note").press("Escape")
    page.keyboard.press("d")
    becomes(requests[1], "rejected")
    expect(page.locator("#queue [data-item]")).to_have_count(3)
    expect(page.locator(f"#q-{requests[3].public_id}")).to_be_visible()
    expect(page.locator("#detail")).to_have_attribute("data-shown", f"q-{requests[2].public_id}")
    assert Review.objects.get().comment == "Not today."


def test_the_first_request_that_arrives_is_answered_with_the_keys(ada: User, rosa: User, window_of: PageAs) -> None:
    """A page opened while nothing waits shows the request beside the list, with its bar and its digest."""
    page = window_of(rosa, viewport={"width": 1440, "height": 1400})  # the change is in view below the first steps
    page.goto("/")
    expect(page.locator("#queue .empty")).to_be_visible()
    expect(page.locator("#live")).to_contain_text("Live")
    request = asked(ada, "one.txt")
    expect(page.locator("#detail")).to_have_attribute("data-shown", f"q-{request.public_id}")
    assert page.locator("[name=seen_digest]").input_value() == request.digest
    press_approve(page)
    eventually(lambda: Review.objects.filter(request=request, verdict="approve").exists(), what="an approval")
