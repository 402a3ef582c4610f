"""The inbox as people meet it without JavaScript: every state of a request, every answer, nothing hidden."""

import json
import re
from datetime import timedelta

import pytest

from approvals.decisions import decide
from approvals.models import ApprovalRequest, Review, Round
from catalog import clock
from catalog.results import Preview
from tests.approvals.builders import approval, ask, make_tool, rejection, set_rule
from tests.pages import Pages

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("long_now")]
HOSTILE = "<script>alert(1)</script>\u202e\u200b"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;"


def path_of(request: ApprovalRequest, action: str = "") -> str:
    """Return the address of a request, or of an action on it."""
    return f"/approvals/{request.public_id}/{action}/" if action else f"/approvals/?item={request.public_id}"


def answer(pages: Pages, request: ApprovalRequest, verdict: str, status: int = 200, **fields) -> str:
    """Open a request and send the form of its bar."""
    pages.open(path_of(request))
    form = {"verdict": verdict, "seen_digest": pages.field("seen_digest"), **fields}
    return pages.send(path_of(request, "decision"), form, status)


def final():
    """Return a tool whose calls cannot be undone."""
    return make_tool("wipe_note", reversibility="irreversible")


def test_nothing_waits(rosa):
    """The list and the pane say so."""
    assert "Nothing is waiting" in Pages(rosa).open("/approvals/")


def test_nothing_waits_any_more(ada, rosa, tomas):
    """The last answer is named."""
    request = ask(ada)
    decide(request, by=tomas, decision=approval(request))
    assert "The last one was approved just now" in Pages(rosa).open("/approvals/")


def test_the_oldest_request_is_open(ada, rosa):
    """With its facts, its change, and a bar to answer."""
    first, _ = ask(ada), ask(ada)
    page = Pages(rosa).open("/approvals/")
    for said in ("Waiting for you", "Dangerous", "Write note.txt", "Restorable", "+1 \u22120 lines", "Ada", "1 of 2"):
        assert said in page
    assert first.digest[:8] in page
    assert "Approve and run" in page


def test_those_that_wait_for_the_same_call_are_shown_with_it(ada, rosa, tomas):
    """With the way to see them side by side; an answer counts for one alone."""
    first, second, third = (ask(ada) for _ in range(3))
    pages = Pages(rosa)
    page = pages.open(path_of(first))
    assert "2 others wait for exactly this call." in page and f'href="{path_of(third)}"' in pages.html
    assert f"/approvals/several/?item={first.public_id}&amp;item={second.public_id}" in pages.html
    assert page.count("Ada asked just now") == 3  # the two others, and the thread of this one
    together = pages.open(f"/approvals/several/?item={first.public_id}&item={second.public_id}")
    assert together.count("Ada asked just now") == 2
    decide(second, by=tomas, decision=approval(second))
    page = pages.open(path_of(first))
    assert "1 other waits for exactly this call." in page
    decide(third, by=tomas, decision=rejection(third, "Once is enough."))
    assert "exactly this call" not in pages.open(path_of(first))
    assert "exactly this call" not in pages.open(path_of(second))


def test_requests_stand_with_their_age_and_time_left(ada, rosa):
    """Amber below five minutes, red below one."""
    request = ask(ada)
    for seconds, hue in ((240, "t-warn"), (30, "t-danger")):
        ApprovalRequest.objects.update(expires_at=clock.now() + timedelta(seconds=seconds))
        pages = Pages(rosa)
        pages.open(path_of(request))
        assert f'class="{hue}"' in pages.html


def test_approving_opens_the_next(ada, rosa, settings):
    """And says when it starts, with a way back."""
    settings.TOOLGATE_UNDO_SECONDS = 60
    first, second = ask(ada), ask(ada)
    pages = Pages(rosa)
    page = answer(pages, first, "approve", comment="Fine.\r\nGo on.")
    first.refresh_from_db()
    assert (first.status, Review.objects.get().comment) == ("approved", "Fine.\nGo on.")
    assert re.search(r"Approved\. It starts in [56]\d s", page)
    assert path_of(first, "undo") in pages.html
    assert f'data-shown="q-{second.public_id}"' in pages.html


def test_undo_takes_it_back(ada, rosa, settings):
    """Within the window; the request waits again."""
    settings.TOOLGATE_UNDO_SECONDS = 60
    request, pages = ask(ada), Pages(rosa)
    answer(pages, request, "approve")
    assert "Taken back" in pages.send(path_of(request, "undo"))
    request.refresh_from_db()
    assert request.status == "pending"


def test_undo_comes_too_late(ada, rosa, settings):
    """The page says that, and that nothing changed."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    request, pages = ask(ada), Pages(rosa)
    answer(pages, request, "approve")
    assert "The time to undo is over" in pages.send(path_of(request, "undo"), status=409)


def test_rejecting_takes_a_reason_along(ada, rosa):
    """Everyone reads it."""
    request = ask(ada)
    answer(Pages(rosa), request, "reject", comment="Not there.")
    assert "Rosa rejected this just now. “ Not there. ”" in Pages(ada).open(path_of(request))


def test_what_cannot_be_undone_takes_a_second_press(ada, rosa):
    """The first changes nothing, keeps the note and asks again."""
    request, pages = ask(ada, final()), Pages(rosa)
    page = answer(pages, request, "approve", comment="Sure.")
    assert "This cannot be undone" in page and "Sure." in page
    assert not Review.objects.exists()
    fields = {"verdict": "approve", "seen_digest": request.digest, "confirmed": "1"}
    pages.send(path_of(request, "decision"), fields)
    request.refresh_from_db()
    assert request.status == "approved"


def test_a_rejection_that_needs_a_reason_says_so(ada, rosa):
    """The error stands at the note; 422 to programs."""
    request, pages = ask(ada, final()), Pages(rosa)
    page = answer(pages, request, "reject", 422, comment="  ")
    assert "Say why you reject this" in page
    assert 'aria-invalid="true" aria-describedby="note-e"' in pages.html
    answer(pages, request, "reject", 422, comment="x" * 4001)
    assert "x" * 4001 in pages.html


def test_someone_answered_first(ada, rosa, tomas):
    """409: who, what and when; no form any more."""
    request, pages = ask(ada), Pages(rosa)
    pages.open(path_of(request))
    decide(request, by=tomas, decision=approval(request, channel="page"))
    fields = {"verdict": "reject", "seen_digest": request.digest}
    page = pages.send(path_of(request, "decision"), fields, 409)
    assert "Tomas approved this just now. Your answer was not recorded." in page
    assert "Approve and run" not in page


def test_something_changed_meanwhile(ada, rosa):
    """409: look again; the form is there with the digest of now."""
    request, pages = ask(ada), Pages(rosa)
    pages.open(path_of(request))
    fields = {"verdict": "approve", "seen_digest": "0" * 64}
    page = pages.send(path_of(request, "decision"), fields, 409)
    assert "has changed since you looked" in page
    assert pages.field("seen_digest") == request.digest


def test_ones_own_request(rosa, tomas):
    """The bar says why not, and who may."""
    request, pages = ask(rosa), Pages(rosa)
    page = pages.open(path_of(request))
    assert "You asked for this call, so someone else must decide it." in page
    assert "1 can: Tomas." in page
    assert "Approve and run" not in page
    fields = {"verdict": "approve", "seen_digest": request.digest}
    assert "You asked for this call" in pages.send(path_of(request, "decision"), fields, 403)


@pytest.mark.parametrize("name", ["vera", "ada"])
def test_who_does_not_review_only_reads(name, ben, rosa, request):
    """Viewers and operators."""
    held = ask(ben)
    page = Pages(request.getfixturevalue(name)).open(path_of(held))
    assert "1 can: Rosa." in page
    assert "Approve and run" not in page


def test_expired(ada, rosa):
    """While it is looked at, and before: read only."""
    request, pages = ask(ada), Pages(rosa)
    pages.open(path_of(request))
    ApprovalRequest.objects.update(expires_at=clock.now())
    fields = {"verdict": "approve", "seen_digest": request.digest}
    assert "it has expired" in pages.send(path_of(request, "decision"), fields, 409)
    assert "This request has expired" in pages.open(path_of(request))


def test_decided_ones_are_listed_newest_first(ada, rosa):
    """With who decided; a link in between goes on."""
    requests = [ask(ada) for _ in range(3)]
    for request in requests:
        decide(request, by=rosa, decision=rejection(request, "No."))
    pages = Pages(rosa)
    assert "Rejected by Rosa" in pages.open("/approvals/?status=decided")
    pages.open(f"/approvals/?status=decided&before={requests[2].pk}")
    assert f"q-{requests[1].public_id}" in pages.html
    assert f'id="q-{requests[2].public_id}"' not in pages.html


def test_precedent_is_told(ada, rosa, tomas):
    """Of the same tool, with the reason."""
    earlier = ask(ada)
    decide(earlier, by=tomas, decision=rejection(earlier, "Outside of the folder"))
    page = Pages(rosa).open(path_of(ask(ada)))
    assert "Rejected by Tomas “Outside of the folder”" in page


@pytest.mark.parametrize(
    ("preview", "said"),
    [
        (None, "The tool shows nothing of what it would do"),
        (Preview("Move people", "rows", rows=({"name": "Ada", "room": 4}, {"name": "Ben"})), "2 rows"),
        (Preview("Send", "text", after="Dear Ada"), "Dear Ada"),
        (Preview("Send", "text", after="Dear Ada"), "Touches See below what the tool shows of it"),
        (Preview("Delete note.txt", "diff", before="a\nb\n"), "+0 \u22122 lines"),
    ],
)
def test_every_kind_of_preview(ada, rosa, preview, said):
    """Each shows what the tool said."""
    assert said in Pages(rosa).open(path_of(ask(ada, preview=preview)))


def test_a_text_that_is_not_there_is_said_to_be_missing(ada, rosa):
    """In the place of an empty box; the other box is that of the JSON view."""
    pages = Pages(rosa)
    for after, boxes in (("Dear Ada", 1), (None, 0), ("", 0)):
        page = pages.open(path_of(ask(ada, preview=Preview("Send", "text", after=after))))
        shown = pages.html.partition('id="v-d"')[2].partition('id="v-j"')[0]
        assert shown.count("<pre") == 1 + boxes
        assert ("The tool shows nothing of what it would do" in page) is not bool(boxes)
        assert ("See below what the tool shows" in page) is bool(boxes)


def test_nothing_is_cut_and_nothing_is_hidden(ada, rosa):
    """10 KB in one line, with its size; characters that do not show are spelled out, markup is text."""
    request, pages = ask(ada), Pages(rosa)
    arguments = {"path": HOSTILE, "note": "y" * 10240, HOSTILE: {"deep": HOSTILE}}
    Round.objects.update(arguments=json.dumps(arguments), preview=json.dumps({"summary": HOSTILE, "kind": "none"}))
    type(request.call).objects.update(reason=HOSTILE)
    page = pages.open(path_of(request))
    assert "y" * 10240 in page and "10 KB, shown in full, 1 line" in page
    assert "8 characters of what the agent wrote do not show" in page
    assert "<script>alert" not in pages.html and SHOWN in pages.html
    assert "\u202e" not in pages.html and "U+202E" in pages.html


def test_raw_json_is_a_page_of_its_own(ada, rosa):
    """The tab is a link."""
    pages = Pages(rosa)
    pages.open(path_of(ask(ada)) + "&view=json")
    assert pages.html.index('id="v-d" role="tabpanel" aria-labelledby="vt-d" hidden') > 0


def test_what_one_may_not_see_is_not_there(ada, rosa, vera):
    """Neither for pages nor for forms."""
    pages = Pages(rosa)
    assert "There is no request apr_nowhere that you may see" in pages.open("/approvals/?item=apr_nowhere", 404)
    pages.open("/tools/")
    pages.send("/approvals/apr_nowhere/decision/", {"verdict": "approve"}, 404)


@pytest.mark.parametrize(
    "query", ["status=nope", "before=x", "before=9" + "9" * 30, "item=%00", "view=%FF", "status=%00"]
)
def test_no_query_breaks_the_page(rosa, ada, query):
    """What means nothing is left out."""
    ask(ada)
    assert Pages(rosa).client.get(f"/approvals/?{query}").status_code in (200, 404)


@pytest.mark.parametrize("fields", [{}, {"verdict": "maybe"}, {"verdict": "approve", "comment": "\x00"}])
def test_no_form_breaks_the_page(ada, rosa, fields):
    """422 or 409, and nothing is stored."""
    request, pages = ask(ada), Pages(rosa)
    pages.open(path_of(request))
    response = pages.client.post(path_of(request, "decision"), fields | {"csrfmiddlewaretoken": _token(pages)})
    assert response.status_code in (409, 422)
    assert not Review.objects.exists()


def _token(pages: Pages) -> str:
    return pages.field("csrfmiddlewaretoken")


def test_a_form_of_another_site_is_refused(ada, rosa):
    """In words."""
    request = ask(ada)
    response = Pages(rosa).client.post(path_of(request, "decision"), {"verdict": "approve"})
    assert response.status_code == 403
    assert b"This page is out of date" in response.content


def test_htmx_is_sent_the_parts_that_change(ada, rosa):
    """The next request, the list, the counts and the message; setbacks keep the address."""
    first, second = ask(ada), ask(ada)
    pages = Pages(rosa)
    pages.open(path_of(first))
    fields = {"verdict": "approve", "seen_digest": first.digest}
    response = pages.swap(path_of(first, "decision"), "pane", fields)
    assert response["HX-Replace-Url"] == path_of(second)
    sent = response.content.decode()
    assert "<html" not in sent
    for part in (
        'id="queue" data-list="follow" hx-swap-oob="innerHTML"',
        'id="waiting-side"',
        'id="toasts" hx-swap-oob',
    ):
        assert part in sent
    again = pages.swap(path_of(first, "decision"), "pane", fields, 409)
    assert "HX-Replace-Url" not in again


def test_a_part_is_a_part_and_history_gets_a_page(ada, rosa):
    """By HX-Target; what htmx restores from history is whole."""
    request, pages = ask(ada), Pages(rosa)
    pages.open(path_of(request), headers={"HX-Request": "true", "HX-Target": "pane"})
    assert "<html" not in pages.html
    headers = {"HX-Request": "true", "HX-Target": "pane", "HX-History-Restore-Request": "true"}
    pages.open(path_of(request), headers=headers)
    assert "<html" in pages.html


def test_reasons_may_be_asked_for_by_the_policy(ada, rosa):
    """Also of what can be undone."""
    set_rule(reason_required=True)
    assert "Say why" in answer(Pages(rosa), ask(ada), "reject", 422)
