"""Other review actions in a browser: edits, answers, comments, snoozing, delegation, batches, policy requirements."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import ApprovalRequest, Comment, Delegation, Review, Round, Snooze
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
    """A plan that waits for approval before it writes a file; another step depends on that."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    steps = (step(1), write_step(2, "note.txt", "hello\nworld\n", dependencies=[1]), step(3, dependencies=[2]))
    return work_off(make_plan(ada, *steps))


def test_edit_and_approve(held, rosa, workspace, page_as: PageAs):
    """The edit is checked while it is typed, its changes are counted on the button, and it is what runs."""
    page = page_as(rosa)
    open_inbox(page)
    page.keyboard.press("e")
    content = page.get_by_label("content")
    expect(content).to_have_value("hello\nworld\n")
    content.fill("hello\nmoon\n")
    expect(page.locator("#edited ins").first).to_contain_text("moon")
    expect(page.locator("#edit-go")).to_have_attribute("data-changes", "1")
    page.locator("#diff-end").scroll_into_view_if_needed()
    expect(page.locator("#edited[data-clean]")).to_be_visible()
    expect(page.locator(".button.go:not([data-unread])")).to_be_visible()
    content.press("Control+Enter")
    becomes(request_of(held, 2), "approved")
    work_off(held)
    assert (workspace / "note.txt").read_text() == "hello\nmoon\n"


@pytest.mark.layout
def test_mark_of_a_default_leaves_with_its_value(ada, rosa, page_as: PageAs):
    request = ask(ada)
    Round.objects.filter(request=request).update(defaults='[["content"]]')
    page = page_as(rosa)
    open_inbox(page, f"?item={request.public_id}&view=edit")
    for value, marked in (("other", 0), ("hello", 1)):
        page.get_by_label("content").fill(value)
        expect(page.locator("[data-default-mark]:visible")).to_have_count(marked)


def has_left(page: Page) -> bool:
    """Press Escape, which is ignored while the pane loads; return True if the form is gone."""
    page.keyboard.press("Escape")
    return page.locator("#response").count() == 0 and page.locator("#pane[aria-busy]").count() == 0


@pytest.mark.layout
def test_each_action_has_its_key(ada, rosa, tomas, page_as: PageAs):
    """Comment, claim, answer, delegate and snooze; none of them decides anything."""
    request, page = ask(ada), page_as(rosa)
    open_inbox(page)
    expect(page.locator("#ask")).to_be_hidden()  # the thread is folded until somebody writes in it
    page.keyboard.press("q")
    page.keyboard.type("Which note is this?")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".moments")).to_contain_text("Which note is this?")
    page.keyboard.press("m")
    expect(page.locator("#claimed")).to_be_visible()
    expect(page.locator("#ask")).to_be_visible()
    page.keyboard.press("r")
    expect(page.locator("#response")).to_be_focused()
    page.keyboard.press("Escape")
    eventually(lambda: has_left(page), what="leaving the form")
    page.keyboard.press("w")
    page.locator(f"#to-{request.public_id}").select_option("tomas")
    page.get_by_role("button", name="Delegate", exact=True).click()
    eventually(Delegation.objects.filter(request=request, to=tomas).exists, what="the delegation")
    expect(page.locator("#thread")).to_contain_text("Tomas")
    page.keyboard.press("s")
    page.get_by_role("button", name="1 hour").click()
    eventually(Snooze.objects.filter(request=request, person=rosa).exists, what="the snooze")
    assert (Comment.objects.get().text, request.reviews.count()) == ("Which note is this?", 0)


def test_answer_instead_of_the_tool_is_sent_by_control_enter(ada, rosa, page_as: PageAs, complaints):
    """An answer that could not be sent stays in its form."""
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
def test_u_revokes_an_unused_approval_and_p_opens_the_plan(held, rosa, settings, page_as: PageAs):
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
def test_recent_reasons_are_offered_for_a_rejection(held, ada, rosa, page_as: PageAs):
    earlier = ask(ada)
    decide(earlier, by=rosa, decision=rejection(earlier, "Not on a Friday."))
    page = page_as(rosa)
    open_inbox(page, f"?item={request_of(held, 2).public_id}")
    page.keyboard.press("d")
    page.get_by_role("button", name="Not on a Friday.").click()
    expect(page.locator("#note")).to_have_value("Not on a Friday.")
    page.keyboard.press("Escape")
    page.locator("details.menu > summary").click()
    page.locator('[data-writes="reject:skip"]').click()
    becomes(request_of(held, 2), "rejected")
    assert Review.objects.latest("id").effect == "skip"


@pytest.mark.layout
def test_policy_requires_typing_the_target_and_reading_time(ada, rosa, page_as: PageAs):
    """The error names the missing one."""
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
    """Press Approve, which scrolls through the changes, until it is unlocked."""
    approving = page.locator("[data-several] [value=approve]")
    if approving.get_attribute("data-unread") is not None:
        approving.click()
    expect(approving).not_to_have_attribute("data-unread", "")


@pytest.mark.layout
def test_batch_is_locked_until_all_changes_were_shown(ada, rosa, page_as: PageAs):
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
def test_batch_page_selects_no_request_and_keeps_the_position(ada, rosa, page_as: PageAs):
    """X selects nothing unseen, and J opens the request at the last position."""
    set_rule(batchable=True)
    requests = [ask(ada) for _ in range(3)]
    page = page_as(rosa)
    current = page.locator("#queue [aria-current]")
    open_inbox(page, f"?item={requests[1].public_id}")
    page.keyboard.press("x")
    page.get_by_role("button", name="Answer it").click()
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


def test_several_requests_are_approved_together(ada, rosa, page_as: PageAs):
    """X, Shift X and A open a table of the differences; one press gives a result for each."""
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
    page.locator("[data-several] [value=approve]").click()
    expect(page.locator(".results li")).to_have_count(2)
    statuses = ApprovalRequest.objects.filter(pk__in=[each.pk for each in requests]).order_by("id")
    assert list(statuses.values_list("status", flat=True)) == ["approved", "approved", "pending"]


@pytest.mark.layout
def test_claim_and_comment_keep_the_unsent_note(ada, rosa, page_as: PageAs):
    request = ask(ada)
    page = page_as(rosa)
    open_inbox(page)
    page.locator("#note").fill("Half a reason")
    page.locator("#thread > summary").click()
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
def test_decision_keys_apply_to_the_selection(ada, rosa, page_as: PageAs):
    """They open the batch and give its answers; Escape clears the selection and reopens the request."""
    set_rule(batchable=True)
    ask(ada)
    current = ask(ada, make_tool("wipe_note", reversibility="irreversible"))
    page = page_as(rosa)
    open_inbox(page)
    page.keyboard.press("x")
    page.keyboard.press("j")
    expect(page.locator(f"#detail[data-shown=q-{current.public_id}]")).to_be_visible()
    expect(page.locator("#bulk")).to_contain_text("1 selected")
    expect(page.locator("form.decide")).to_be_hidden()
    page.keyboard.press("x")
    expect(page.locator("#toasts")).to_contain_text("one by one")
    expect(page.locator("#bulk")).to_contain_text("1 selected")
    page.keyboard.press("a")
    expect(page.locator("#several [name=item]")).to_have_count(1)
    page.keyboard.press("d")
    expect(page.locator("#note")).to_be_focused()
    expect(page.locator("#several .go")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#several .go")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#bulk")).to_be_hidden()
    expect(page.locator(f"#detail[data-shown=q-{current.public_id}]")).to_be_visible()
    press_approve(page)
    expect(page.locator(".button.go.armed")).to_be_visible()
    assert not Review.objects.exists()


def test_changed_request_is_not_decided(held, rosa, tomas, page_as: PageAs):
    """The page shows the difference."""
    request, page = request_of(held, 2), page_as(rosa)
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    open_inbox(page)
    changed = {"path": "note.txt", "content": "other\n"}
    decide(request, by=tomas, decision=Decision(ReviewVerdict.APPROVE, request.digest, arguments=changed))
    press_approve(page)
    expect(page.locator("[role=alert]").first).to_contain_text("has changed since you")
    page.locator(".changed summary").click()
    expect(page.locator(".changed ins").first).to_contain_text("other")


@pytest.mark.layout
def test_mixed_requests_by_keyboard_alone(ada, rosa, page_as: PageAs):
    """Each decision opens the next request."""
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
    """Press the keys of this kind of answer."""
    expect(page.locator("form:not([data-fresh]) > .button.go:not([data-unread])")).to_be_visible()
    if kind in (0, 3):
        page.keyboard.press("a")
    if kind == 3:
        page.keyboard.press("a")
    if kind in (1, 2):
        page.keyboard.press("d" if kind == 1 else "c")
        page.keyboard.type("Not like this.")
        page.keyboard.press("Control+Enter")
