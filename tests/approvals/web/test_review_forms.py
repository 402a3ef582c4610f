"""The forms of the desk as browsers without scripts send them: edits, answers, actions, several at once, friction."""

import json
import re
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import ApprovalRequest, Comment, Delegation, Review, Snooze
from approvals.reviews import edits
from approvals.reviews.decisions import decide
from approvals.web.review.batch import load_batch
from catalog.access.roles import can_see_all
from catalog.core import clock
from plans.models import Plan
from tests.approvals.factories import approval, ask, make_tool, rejection, set_rule, setback_on
from tests.builders import make_plan, request_of, step, work_off, write_step
from tests.pages import Pages, words

pytestmark = pytest.mark.django_db
CURRENT = re.compile(r'<article class="qi" id="([^"]+)" data-item aria-current')


def page_of(request: ApprovalRequest, action: str = "", **query: str) -> str:
    """Return the address of a request's page, or of an action on it."""
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/approvals/{request.public_id}/{action}/" if action else f"/approvals/?item={request.public_id}{more}"


@pytest.fixture
def held(catalog: None, workspace: Path, ada: User, settings) -> ApprovalRequest:
    """A call that waits before it writes a file."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    plan: Plan = work_off(make_plan(ada, write_step(1, "note.txt", "hello\n"), step(2, dependencies=[1])))
    return request_of(plan)


def go_of(pages: Pages) -> str:
    """Return what the button says that approves an edit."""
    return words(pages.html.partition('id="edit-go">')[2].partition("</span>")[0])


def edited(held: ApprovalRequest, **fields: str) -> dict[str, str]:
    """Return what the form of an edit sends."""
    arguments = {"value:path": "note.txt", "value:content": "hello\n"}
    return {"mode": "form", "seen_digest": held.digest, "verdict": "approve", **arguments, **fields}


def test_what_will_soon_expire_is_extended_by_a_press(held, rosa):
    """The press is there only then."""
    pages = Pages(rosa)
    pages.open(page_of(held))
    assert page_of(held, "extend") not in pages.html
    ApprovalRequest.objects.filter(pk=held.pk).update(expires_at=clock.now() + timedelta(minutes=5))
    pages.open(page_of(held))
    assert page_of(held, "extend") in pages.html
    pages.send(page_of(held, "extend"), {})
    held.refresh_from_db()
    assert (held.extensions, held.expires_at > clock.now() + timedelta(minutes=30)) == (1, True)


def test_an_edit_is_what_runs(held, rosa):
    """It is a round of its own, with who made it."""
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    pages.send(page_of(held, "decision"), edited(held, **{"value:content": "other\n"}))
    held.refresh_from_db()
    assert (held.status, held.round_number) == ("approved", 2)
    assert held.rounds.get(number=2).editor == rosa


def test_an_approved_edit_is_previewed_once(held, rosa, monkeypatch):
    preview = Mock(wraps=edits.compute_preview)
    monkeypatch.setattr(edits, "compute_preview", preview)
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    pages.send(page_of(held, "decision"), edited(held, **{"value:content": "other\n"}))
    assert (preview.call_count, held.rounds.count()) == (1, 2)


def test_an_edit_that_changes_nothing_is_an_approval(held, rosa):
    """No round is made of it."""
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    pages.send(page_of(held, "decision"), edited(held))
    held.refresh_from_db()
    assert (held.status, held.round_number) == ("approved", 1)


def test_a_wrong_edit_is_kept_with_what_is_wrong(held, rosa):
    """As JSON here; nothing is recorded."""
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    fields = {"mode": "json", "json": '{"path": 1}', "seen_digest": held.digest, "verdict": "approve"}
    page = pages.send(page_of(held, "decision"), fields, status=422)
    assert 'id="editing"' in pages.html and '{"path": 1}' in page
    assert not Review.objects.exists()


def test_a_check_tells_the_change_and_the_rule(held, rosa):
    """Without JavaScript by a button; htmx is sent the comparison alone."""
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    fields = edited(held, **{"value:content": "other\n", "do": "check"})
    pages.send(page_of(held, "edit"), fields)
    assert re.findall(r'class="(?:both|came|gone)"', pages.html) == ['class="both"']
    part = pages.swap(page_of(held, "edit"), "edited", fields).content.decode()
    assert part.lstrip().startswith('<section class="card" id="edited"')


@pytest.mark.parametrize(("content", "button"), [("hello\n", "Approve as asked"), ("other\n", "Approve with 1 change")])
def test_another_view_of_the_form_tells_the_change(held, rosa, content, button):
    """The button says what it would approve, also after the arguments were shown as JSON or as a form again."""
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    for wanted, mode in (("show:json", "form"), ("show:form", "json")):
        fields = edited(held, do=wanted, mode=mode, json=f'{{"path": "note.txt", "content": {json.dumps(content)}}}')
        pages.send(page_of(held, "edit"), {**fields, "value:content": content})
        assert go_of(pages) == button


def test_what_cannot_run_is_not_called_unchanged(held, rosa):
    """Neither after a check of the whole page nor while the form changes."""
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    for wanted, status in (("check", 422), ("show:json", 200)):
        pages.send(page_of(held, "edit"), edited(held, do=wanted, **{"value:path": "../note.txt"}), status)
        assert go_of(pages) == "Mend it, then approve"


def test_the_change_stands_beside_what_was(held, rosa):
    """Old and new in one row, each with its sign; what is the same in both, what has no counterpart alone."""
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    pages.send(page_of(held, "edit"), edited(held, do="check", **{"value:content": "hello you\nmore\n"}))
    rows = re.findall(r'<tr class="(same|both|came|gone)">(.*?)</tr>', pages.html)
    assert [kind for kind, _ in rows] == ["same", "both", "came", "same", "same"]
    both = dict(rows)["both"]
    assert both.index("\u2212") < both.index("hello") < both.index("+") < both.index("you</ins>")


def test_rejecting_the_rest_of_the_plan(held, rosa):
    """The effect is part of the button."""
    pages = Pages(rosa)
    pages.open(page_of(held))
    fields = {"verdict": "reject:cancel_plan", "seen_digest": held.digest, "comment": "No more of this."}
    pages.send(page_of(held, "decision"), fields)
    assert Review.objects.get().effect == "cancel_plan"


def test_an_answer_must_fit(ada, rosa):
    """Text where there is no schema; an empty one is refused at its field."""
    request, pages = ask(ada), Pages(rosa)
    pages.open(page_of(request, view="respond"))
    fields = {"verdict": "respond", "seen_digest": request.digest, "response": " ", "response_as": "text"}
    pages.send(page_of(request, "decision"), fields, status=422)
    assert setback_on(pages) == "response"
    pages.send(page_of(request, "decision"), fields | {"response": "It is done."})
    request.refresh_from_db()
    assert request.status == "responded"


@pytest.mark.parametrize("sent", ["seen", "stale", "late"])
def test_no_refusal_loses_what_was_written(held, rosa, tomas, sent):
    """It stands in its own form again; where the request takes no answer any more, it can be read and copied."""
    pages, most = Pages(rosa), 4000 * "x"
    pages.open(page_of(held, view="edit"))
    if sent == "late":
        decide(held, by=tomas, decision=rejection(held, "No."))
    digest = {"seen": held.digest, "stale": "0" * 64, "late": held.digest}[sent]
    wrong, content, status = ("x", 1, 422) if sent == "seen" else ("", '""', 409)
    forms = {
        "response": {"verdict": "respond", "response": "mine alone", "comment": most + wrong},
        "edit-json": {"verdict": "approve", "mode": "json", "json": f'{{"path": "mine alone", "content": {content}}}'},
        "note": {"verdict": "reject", "comment": f"mine alone{most[10:]}{wrong}"},
    }
    for field, form in forms.items():
        pages.send(page_of(held, "decision"), {"seen_digest": digest} | form, status)
        kept = re.search(
            rf'<textarea[^>]* id="{"written" if sent == "late" else field}".*?</textarea>', pages.html, re.S
        )
        assert kept and "mine alone" in kept[0], field
    pages.send(page_of(held, "comment"), {"comment": f"mine alone{most}"}, 422)
    kept = re.search(r'<textarea[^>]* id="ask".*?</textarea>', pages.html, re.S)
    assert kept and "mine alone" in kept[0]
    assert Review.objects.filter(person=rosa).count() == 0


def test_every_action_of_the_desk_is_done_and_confirmed(ada, rosa, tomas):
    """They decide nothing."""
    request, pages = ask(ada), Pages(rosa)
    pages.open(page_of(request))

    def done(action: str, **fields: str) -> tuple[User | None, list[int]]:
        pages.send(page_of(request, action), fields)
        assert pages.html.count('class="toast"') == 1, action
        request.refresh_from_db()
        return request.claimed_by, [rows.count() for rows in (Delegation.objects, Comment.objects, Snooze.objects)]

    assert done("claim") == (rosa, [0, 0, 0])
    assert done("release") == (None, [0, 0, 0])
    assert done("delegate", to="tomas") == (None, [1, 0, 0])
    assert done("delegate", to="") == (None, [0, 0, 0])
    assert done("comment", comment="Why?") == (None, [0, 1, 0])
    assert done("snooze", until=(clock.now() + timedelta(hours=1)).isoformat()) == (None, [0, 1, 1])
    assert done("wake") == (None, [0, 1, 0])
    assert request.status == "pending"


def test_no_form_breaks_an_action(ada, rosa, vera):
    """The field that is wrong is named."""
    request, pages = ask(ada), Pages(rosa)
    pages.open(page_of(request))
    for action, field, value in (
        ("snooze", "until", "x"),
        ("snooze", "until", "2026-13-45T00:00:00Z"),
        ("delegate", "to", "nobody\x00"),
        ("delegate", "to", "vera"),
        ("delegate", "to", ""),
        ("comment", "comment", " "),
    ):
        pages.send(page_of(request, action), {field: value}, status=422)
        assert setback_on(pages) == field


def test_a_request_is_withdrawn_on_its_page(ada):
    """With a reason, if they give one; there is no other action."""
    request, mine = ask(ada), Pages(ada)
    mine.open(page_of(request))
    mine.send(page_of(request, "withdraw"), {"comment": "Not needed."})
    request.refresh_from_db()
    assert request.status == "withdrawn"
    mine.send(page_of(request, "explode"), status=404)


def test_ones_own_request_is_said_each_time(ada):
    """Where the policy lets people review themselves."""
    set_rule(allow_self_review=True, stages=[{"group": "operator", "count": 1}])
    request, pages = ask(ada), Pages(ada)
    pages.open(page_of(request))
    assert "data-own" in pages.html
    decide(request, by=ada, decision=approval(request))
    assert "Their own request" in pages.open(page_of(request))


def test_private_arguments_of_several_requests_take_one_query(ada, vera):
    """It takes as many queries for three as for one."""
    requests, taken = [ask(ada) for _ in range(3)], list[int]()
    assert can_see_all(vera)  # which reads her groups, once
    for some in (requests, requests[:1]):
        with CaptureQueriesContext(connection) as queries:
            request_details = load_batch(vera, [each.public_id for each in some]).request_details
        assert [each.request for each in request_details] == some
        taken.append(len(queries))
    assert taken[0] == taken[1]


def test_several_that_may_not_be_approved_together(ada, rosa):
    """The reason is on the page, and the form cannot get around it."""
    requests, pages = [ask(ada), ask(ada, make_tool("other_note"))], Pages(rosa)
    pages.open("/approvals/several/?" + "&".join(f"item={each.public_id}" for each in requests))
    assert 'name="verdict" value="reject"' in pages.html and 'name="verdict" value="approve"' not in pages.html
    fields = {"verdict": "approve", "item": [f"{each.public_id}:{each.digest}" for each in requests]}
    pages.send("/approvals/several/", fields, status=422)  # type: ignore[arg-type] # Django sends lists
    assert not Review.objects.exists()


def test_several_that_cannot_be_undone_take_a_second_press(ada, rosa):
    """Nothing is recorded at the first."""
    tool = make_tool("wipe_note", reversibility="irreversible")
    set_rule(batchable=True, tool="wipe_note")
    request, pages = ask(ada, tool), Pages(rosa)
    pages.open(f"/approvals/several/?item={request.public_id}")
    fields = {"verdict": "approve", "item": f"{request.public_id}:{request.digest}"}
    pages.send("/approvals/several/", fields)
    assert pages.field("confirmed") == "1" and not Review.objects.exists()
    pages.send("/approvals/several/", fields | {"confirmed": "1"})
    request.refresh_from_db()
    assert request.status == "approved"


def test_beside_several_no_request_of_the_list_is_the_current_one(ada, rosa):
    """None of them is what is shown, neither before nor after they were answered."""
    set_rule(batchable=True)
    requests, pages = [ask(ada) for _ in range(3)], Pages(rosa)
    pages.open("/approvals/several/?" + "&".join(f"item={each.public_id}" for each in requests[1:]))
    assert CURRENT.findall(pages.html) == []
    fields = {"verdict": "approve", "item": [f"{each.public_id}:{each.digest}" for each in requests[1:]]}
    pages.send("/approvals/several/", fields)  # type: ignore[arg-type] # Django sends lists
    assert CURRENT.findall(pages.html) == []
    pages.open("/approvals/")
    assert CURRENT.findall(pages.html) == [f"q-{requests[0].public_id}"]


def test_no_selection_breaks_the_page(rosa):
    """There is nothing to answer."""
    pages = Pages(rosa)
    for query in ("", "?item=x", "?item=%00", "?item=" + "a" * 5000):
        pages.open(f"/approvals/several/{query}")
        assert 'id="several"' in pages.html and 'name="verdict"' not in pages.html


def test_saved_views_keep_their_place(ada, rosa):
    """After an answer one is in the view that one was in."""
    first, second = ask(ada), ask(ada)
    pages = Pages(rosa)
    page = pages.open(f"/approvals/?status=needs_me&item={first.public_id}")
    assert "Needs me 2" in page
    fields = {"verdict": "approve", "seen_digest": first.digest, "status": "needs_me"}
    page = pages.send(page_of(first, "decision"), fields)
    assert "Needs me 1" in page and f'data-shown="q-{second.public_id}"' in pages.html
