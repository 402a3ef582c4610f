"""The whole desk in a browser: edit, answer, send back, ask, put off, hand on, select several; what a policy asks."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import ApprovalRequest, Comment, Delegation, Review, Snooze
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.results import Preview
from plans.models import Plan
from tests.approvals.factories import ask, make_tool, rejection, set_rule
from tests.browser.conftest import PageAs, press_approve
from tests.browser.desk import becomes, open_inbox
from tests.builders import make_plan, request_of, step, work_off, write_step
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


@pytest.fixture
def held(catalog: None, workspace: Path, ada: User, settings) -> Plan:
    """A plan that waits for people before it writes a file; a step waits for that step."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    steps = (step(1), write_step(2, "note.txt", "hello\nworld\n", dependencies=[1]), step(3, dependencies=[2]))
    return work_off(make_plan(ada, *steps))


def test_edit_and_approve(held, rosa, workspace, page_as: PageAs):
    """E opens the form, the change is checked while it is typed, the button counts it, and that is what runs."""
    page = page_as(rosa)
    open_inbox(page)
    page.keyboard.press("e")
    content = page.get_by_label("content")
    expect(content).to_have_value("hello\nworld\n")
    content.fill("hello\nmoon\n")
    expect(page.locator("#edited ins").first).to_contain_text("moon")
    expect(page.locator(".button.go")).to_contain_text("Approve with 1 change")
    page.locator("#diff-end").scroll_into_view_if_needed()
    expect(page.locator("#edited[data-clean]")).to_be_visible()
    expect(page.locator(".button.go:not([data-unread])")).to_be_visible()
    content.press("Control+Enter")
    becomes(request_of(held, 2), "approved")
    work_off(held)
    assert (workspace / "note.txt").read_text() == "hello\nmoon\n"


def has_left(page: Page) -> bool:
    """Press Escape, which is not heard while the pane loads; say whether the answer's form is gone."""
    page.keyboard.press("Escape")
    return page.locator("#response").count() == 0 and page.locator("#pane[aria-busy]").count() == 0


@pytest.mark.layout
def test_each_action_has_its_key(ada, rosa, tomas, page_as: PageAs):
    """Ask, claim, answer in the tool's place, delegate, put off: none of them decides anything."""
    request, page = ask(ada), page_as(rosa)
    open_inbox(page)
    page.keyboard.press("q")
    page.keyboard.type("Which note is this?")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".moments")).to_contain_text("Which note is this?")
    page.keyboard.press("m")
    expect(page.locator("#claimed")).to_be_visible()
    page.keyboard.press("r")
    expect(page.locator("#response")).to_be_focused()
    page.keyboard.press("Escape")
    eventually(lambda: has_left(page), what="leaving the form")
    page.keyboard.press("w")
    page.get_by_label("Who may answer in your place").select_option("tomas")
    page.get_by_role("button", name="Delegate", exact=True).click()
    eventually(Delegation.objects.filter(request=request, to=tomas).exists, what="the delegation")
    expect(page.locator("#thread")).to_contain_text("Tomas")
    page.keyboard.press("s")
    page.get_by_role("button", name="1 hour").click()
    eventually(Snooze.objects.filter(request=request, person=rosa).exists, what="the snooze")
    assert (Comment.objects.get().text, request.reviews.count()) == ("Which note is this?", 0)


def test_an_answer_in_the_tools_place_is_sent_by_its_key(ada, rosa, page_as: PageAs, complaints):
    """One that could not be sent stays in its form."""
    request, page = ask(ada), page_as(rosa)
    page.route("**/decision/", lambda route: route.fulfill(status=500), times=1)
    open_inbox(page)
    page.keyboard.press("r")
    page.locator("#response").fill("It is done.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".toast")).to_be_visible()
    expect(page.locator("#response")).to_have_value("It is done.")
    page.locator("#response").press("Control+Enter")
    becomes(request, "responded")
    complaints.clear()


@pytest.mark.layout
def test_u_revokes_and_p_opens_the_plan(held, rosa, settings, page_as: PageAs):
    """After an approval, as long as the call has not started."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    request, page = request_of(held, 2), page_as(rosa)
    open_inbox(page, f"?item={request.public_id}")
    press_approve(page)
    becomes(request, "approved")
    open_inbox(page, f"?item={request.public_id}")
    page.keyboard.press("u")
    becomes(request, "revoked")
    open_inbox(page, f"?item={request.public_id}")
    page.keyboard.press("p")
    page.wait_for_url(f"**/plans/{held.public_id}/?step=2")


@pytest.mark.layout
def test_the_last_reasons_are_offered_to_who_rejects(held, ada, rosa, page_as: PageAs):
    """The reason given before is one press away; the step can be skipped instead."""
    earlier = ask(ada)
    decide(earlier, by=rosa, decision=rejection(earlier, "Not on a Friday."))
    page = page_as(rosa)
    open_inbox(page, f"?item={request_of(held, 2).public_id}")
    page.keyboard.press("d")
    page.get_by_role("button", name="Not on a Friday.").click()
    expect(page.locator("#note")).to_have_value("Not on a Friday.")
    page.locator("details.menu > summary").click()
    page.get_by_role("button", name="Reject, and skip the step").click()
    becomes(request_of(held, 2), "rejected")
    assert Review.objects.latest("id").effect == "skip"


@pytest.mark.layout
def test_what_a_policy_asks_before_an_approval_counts(ada, rosa, page_as: PageAs):
    """Typing what it is about, and a look of some seconds; the words say which is missing."""
    set_rule(typed_target=True, min_review_seconds=3)
    request, page = ask(ada), page_as(rosa)
    open_inbox(page)
    expect(page.locator("[data-wait-note]")).to_have_count(1)
    press_approve(page)
    assert not Review.objects.exists()
    expect(page.locator("[data-wait-note]")).to_be_hidden()
    page.keyboard.press("a")
    expect(page.locator("#note-e")).to_be_visible()
    expect(page.locator("html[data-busy]")).to_have_count(0)  # who pressed too early is answered the same
    page.locator("#typed").fill("note.txt")
    page.locator(".button.go").click()
    becomes(request, "approved")


def read_all(page: Page) -> None:
    """Press Approve, which shows what was not on the screen yet, until it is what it says."""
    approving = page.locator("[data-several] [value=approve]")
    if approving.get_attribute("data-unread") is not None:
        approving.click()
    expect(approving).not_to_have_attribute("data-unread", "")


@pytest.mark.layout
def test_several_are_approved_once_they_were_seen_to_their_end(ada, rosa, page_as: PageAs):
    """What each would do is shown, and until the last of it was on the screen the press leads there."""
    set_rule(batchable=True)
    after = "".join(f"line {number}\n" for number in range(60))
    requests = [ask(ada, preview=Preview("Write note.txt", "diff", before="", after=after)) for _ in range(3)]
    page = page_as(rosa)
    open_inbox(page, "several/?" + "&".join(f"item={each.public_id}" for each in requests))
    approving = page.locator("[data-several] [value=approve]")
    expect(approving).to_have_attribute("data-unread", "")
    approving.click()
    expect(approving).not_to_have_attribute("data-unread", "")
    assert not ApprovalRequest.objects.exclude(status="pending").exists()
    approving.click()
    expect(page.locator(".results li")).to_have_count(3)


@pytest.mark.layout
def test_several_leave_no_request_current_and_the_keys_where_they_were(ada, rosa, page_as: PageAs):
    """Neither opened from the list nor by a link: X selects nothing unseen; J opens the request that one was at."""
    requests = [ask(ada) for _ in range(3)]
    page = page_as(rosa)
    current = page.locator("#queue [aria-current]")
    open_inbox(page, f"?item={requests[1].public_id}")
    page.keyboard.press("x")
    page.get_by_role("button", name="Answer together").click()
    expect(page.locator("#several")).to_be_visible()
    expect(current).to_have_count(0)
    page.locator("#d-h").press("j")
    expect(page.locator(f"#detail[data-shown=q-{requests[1].public_id}]")).to_be_visible()
    expect(current).to_have_id(f"q-{requests[1].public_id}")
    open_inbox(page, "several/?" + "&".join(f"item={each.public_id}" for each in requests[1:]))
    page.keyboard.press("x")
    expect(page.locator("#queue [data-pick]:checked")).to_have_count(0)
    page.keyboard.press("j")
    expect(page.locator(f"#detail[data-shown=q-{requests[0].public_id}]")).to_be_visible()
    expect(current).to_have_id(f"q-{requests[0].public_id}")


def test_several_at_once(ada, rosa, page_as: PageAs):
    """X, Shift X, A, one table of what differs, one press, a result for each."""
    set_rule(batchable=True)
    requests = [ask(ada) for _ in range(3)]
    page = page_as(rosa)
    open_inbox(page)
    page.keyboard.press("x")
    for request in requests[1:]:
        page.keyboard.press("j")
        expect(page.locator(f"#detail[data-shown=q-{request.public_id}]")).to_be_visible()
    page.keyboard.press("Shift+X")
    expect(page.locator("[data-picked]")).to_have_text("3 selected")
    page.keyboard.press("a")
    expect(page.locator("[data-several] [value=approve] [data-checked]")).to_have_text("3")
    expect(page.locator("#several .diff")).to_have_count(3)
    page.locator("[data-several] [name=item]").last.uncheck()
    read_all(page)
    page.get_by_role("button", name="Approve 2 write_note").click()
    expect(page.locator(".results li")).to_have_count(2)
    statuses = ApprovalRequest.objects.filter(pk__in=[each.pk for each in requests]).order_by("id")
    assert list(statuses.values_list("status", flat=True)) == ["approved", "approved", "pending"]


@pytest.mark.layout
def test_a_claim_keeps_the_note_that_was_begun(ada, rosa, page_as: PageAs):
    """The pane is drawn again with the same request; a sent question is used up."""
    request = ask(ada)
    page = page_as(rosa)
    open_inbox(page)
    page.locator("#note").fill("Half a reason")
    page.locator("#ask").fill("Which note?")
    page.locator("#ask").press("Control+Enter")
    expect(page.locator("#thread")).to_contain_text("Which note?")
    expect(page.locator("#ask")).to_have_value("")
    expect(page.locator("#note")).to_have_value("Half a reason")
    page.locator("#note").press("Escape")
    page.keyboard.press("m")
    eventually(ApprovalRequest.objects.filter(pk=request.pk, claimed_by=rosa).exists, what="the claim")
    expect(page.locator("#claimed")).to_be_visible()
    expect(page.locator("#note")).to_have_value("Half a reason")


@pytest.mark.layout
def test_keys_that_answer_are_about_the_selection(ada, rosa, page_as: PageAs):
    """They open it and lead to what answers it; Esc clears it and opens the request again that they are about then."""
    set_rule(batchable=True)
    ask(ada)
    current = ask(ada, make_tool("wipe_note", reversibility="irreversible"))
    page = page_as(rosa)
    open_inbox(page)
    page.keyboard.press("x")
    page.keyboard.press("j")
    expect(page.locator(f"#detail[data-shown=q-{current.public_id}]")).to_be_visible()
    press_approve(page)
    expect(page.locator("#several [name=item]")).to_have_count(1)
    page.keyboard.press("d")
    expect(page.locator("#note")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    expect(page.locator("#several [value=approve]")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#bulk")).to_be_hidden()
    expect(page.locator(f"#detail[data-shown=q-{current.public_id}]")).to_be_visible()
    press_approve(page)
    expect(page.locator(".button.go.armed")).to_be_visible()
    assert not Review.objects.exists()


def test_what_is_asked_has_changed(held, rosa, tomas, page_as: PageAs):
    """Nothing is recorded; the page shows what is different."""
    request, page = request_of(held, 2), page_as(rosa)
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    open_inbox(page)
    changed = {"path": "note.txt", "content": "other\n"}
    decide(request, by=tomas, decision=Decision(ReviewVerdict.APPROVE, request.digest, arguments=changed))
    press_approve(page)
    expect(page.locator("[role=alert]").first).to_contain_text("has changed since you")
    page.get_by_text("Show what changed").click()
    expect(page.locator(".changed ins").first).to_contain_text("other")


@pytest.mark.layout
def test_mixed_requests_by_keyboard_alone(ada, rosa, page_as: PageAs):
    """Approve, reject, send back, approve twice what cannot be undone: each answer opens the next request."""
    wipes = make_tool("wipe_note", reversibility="irreversible")
    requests = [ask(ada, wipes if number % 4 == 3 else None) for number in range(5)]
    page = page_as(rosa)
    open_inbox(page)
    for number, request in enumerate(requests):
        expect(page.locator(f"#detail[data-shown=q-{request.public_id}]")).to_be_visible()
        answer(page, number % 4)
        wanted = ("approved", "rejected", "changes_requested", "approved")[number % 4]
        becomes(request, wanted)
    expect(page.locator("[data-item]")).to_have_count(0)


def answer(page: Page, kind: int) -> None:
    """Press what this kind of answer takes."""
    expect(page.locator("form:not([data-fresh]) > .button.go:not([data-unread])")).to_be_visible()
    if kind in (0, 3):
        page.keyboard.press("a")
    if kind == 3:
        page.keyboard.press("a")
    if kind in (1, 2):
        page.keyboard.press("d" if kind == 1 else "c")
        page.keyboard.type("Not like this.")
        page.keyboard.press("Control+Enter")
