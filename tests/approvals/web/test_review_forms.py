"""Review forms without JavaScript: edits, decisions, actions, batches and confirmations."""

import json
import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import ApprovalRequest, Comment, Delegation, Review, Snooze
from approvals.reviews import edits
from approvals.reviews.decisions import decide
from approvals.stops.services import parse_scope, set_stop
from approvals.web.review.batch import load_batch
from catalog.access.roles import can_see_all
from catalog.core import clock
from catalog.models import ToolVersion
from plans.models import Plan
from tests.approvals.factories import approval, ask, make_tool, rejection, set_rule, setback_on
from tests.builders import make_plan, request_of, step, work_off, write_step
from tests.pages import Pages

pytestmark = pytest.mark.django_db
CURRENT = re.compile(r'<article class="queue-item"\s+id="([^"]+)"\s+data-item\s+aria-current')


def page_of(request: ApprovalRequest, action: str = "", **query: str) -> str:
    """Return the URL of a request's page, or of an action on it."""
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/approvals/{request.public_id}/{action}/" if action else f"/approvals/?item={request.public_id}{more}"


@pytest.fixture
def held(catalog: None, workspace: Path, ada: User, settings) -> ApprovalRequest:
    """A call that waits before it writes a file."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    plan: Plan = work_off(make_plan(ada, write_step(1, "note.txt", "hello\n"), step(2, dependencies=[1])))
    return request_of(plan)


def edit_state(pages: Pages) -> tuple[int, bool]:
    """Return the number of changed arguments on the button that approves an edit, and whether they are invalid."""
    tag = pages.html.partition('id="edit-go"')[2].partition(">")[0]
    return int(tag.partition('data-changes="')[2].partition('"')[0]), "data-invalid" in tag


def edited(held: ApprovalRequest, **fields: str) -> dict[str, str]:
    """Return the data of the edit form."""
    arguments = {"value:path": "note.txt", "value:content": "hello\n"}
    return {"mode": "form", "seen_digest": held.digest, "verdict": "approve", **arguments, **fields}


def test_deadline_can_be_extended_shortly_before_expiry(held, rosa):
    pages = Pages(rosa)
    pages.open(page_of(held))
    assert page_of(held, "extend") not in pages.html
    ApprovalRequest.objects.filter(pk=held.pk).update(expires_at=clock.now() + timedelta(minutes=5))
    pages.open(page_of(held))
    assert page_of(held, "extend") in pages.html
    pages.send(page_of(held, "extend"), {})
    held.refresh_from_db()
    assert (held.extensions, held.expires_at > clock.now() + timedelta(minutes=30)) == (1, True)


def test_edited_arguments_run(held, rosa):
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    pages.send(page_of(held, "decision"), edited(held, **{"value:content": "other\n"}))
    held.refresh_from_db()
    assert (held.status, held.round_number) == ("approved", 2)
    assert held.rounds.get(number=2).editor == rosa


@pytest.mark.parametrize("stopped", ["write_file", "read_file"])
@pytest.mark.parametrize("undo_seconds", [0, 5])
def test_approval_under_a_stop_does_not_say_that_the_call_starts(held, rosa, settings, stopped, undo_seconds):
    settings.TOOLGATE_UNDO_SECONDS = undo_seconds
    set_stop(parse_scope({"tool": stopped}), "A bad day.", by=rosa)
    pages = Pages(rosa)
    pages.open(page_of(held))
    answer = pages.swap(page_of(held, "decision"), "pane", edited(held)).content.decode()
    held.refresh_from_db()
    assert held.status == "approved"
    assert ("when the stop is lifted" in answer) == (stopped == "write_file")


def test_approved_edit_is_previewed_once(held, rosa, monkeypatch):
    preview = Mock(wraps=edits.compute_preview)
    monkeypatch.setattr(edits, "compute_preview", preview)
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    pages.send(page_of(held, "decision"), edited(held, **{"value:content": "other\n"}))
    assert (preview.call_count, held.rounds.count()) == (1, 2)


def test_unchanged_edit_is_an_approval(held, rosa):
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    pages.send(page_of(held, "decision"), edited(held))
    held.refresh_from_db()
    assert (held.status, held.round_number) == ("approved", 1)


def test_invalid_edit_keeps_input_and_shows_problems(held, rosa):
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    fields = {"mode": "json", "json": '{"path": 1}', "seen_digest": held.digest, "verdict": "approve"}
    page = pages.send(page_of(held, "decision"), fields, status=422)
    assert 'id="editing"' in pages.html and '{"path": 1}' in page
    assert not Review.objects.exists()


def test_check_shows_change_and_rule(held, rosa):
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    fields = edited(held, **{"value:content": "other\n", "do": "check"})
    pages.send(page_of(held, "edit"), fields)
    assert re.findall(r'class="(?:both|came|gone)"', pages.html) == ['class="both"']
    part = pages.swap(page_of(held, "edit"), "edited", fields).content.decode()
    assert 'id="edited"' in part and "<html" not in part


@pytest.mark.parametrize(("content", "changes"), [("hello\n", 0), ("other\n", 1)])
def test_json_and_form_views_show_the_change(held, rosa, content, changes):
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    for wanted, mode in (("show:json", "form"), ("show:form", "json")):
        fields = edited(held, do=wanted, mode=mode, json=f'{{"path": "note.txt", "content": {json.dumps(content)}}}')
        pages.send(page_of(held, "edit"), {**fields, "value:content": content})
        assert edit_state(pages) == (changes, False)


def test_invalid_edit_is_not_called_unchanged(held, rosa):
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    for wanted, status in (("check", 422), ("show:json", 200)):
        pages.send(page_of(held, "edit"), edited(held, do=wanted, **{"value:path": "../note.txt"}), status)
        assert edit_state(pages) == (0, True)


def test_change_is_shown_next_to_the_original(held, rosa):
    pages = Pages(rosa)
    pages.open(page_of(held, view="edit"))
    pages.send(page_of(held, "edit"), edited(held, do="check", **{"value:content": "hello you\nmore\n"}))
    rows = re.findall(r'<tr class="(same|both|came|gone)">(.*?)</tr>', pages.html, re.S)
    assert [kind for kind, _ in rows] == ["same", "same", "both", "came", "same"]
    both = dict(rows)["both"].partition("line-number was")[2]
    assert both.index("\u2212") < both.index("hello") < both.index("+") < both.index("you</ins>")


def test_rejection_can_cancel_the_plan(held, rosa):
    pages = Pages(rosa)
    pages.open(page_of(held))
    fields = {"verdict": "reject:cancel_plan", "seen_digest": held.digest, "comment": "No more of this."}
    pages.send(page_of(held, "decision"), fields)
    assert Review.objects.get().effect == "cancel_plan"


def test_response_must_match_the_schema(ada, rosa):
    request, pages = ask(ada), Pages(rosa)
    pages.open(page_of(request, view="respond"))
    fields = {"verdict": "respond", "seen_digest": request.digest, "response": " ", "response_as": "text"}
    pages.send(page_of(request, "decision"), fields, status=422)
    assert setback_on(pages) == "response"
    pages.send(page_of(request, "decision"), fields | {"response": "It is done."})
    request.refresh_from_db()
    assert request.status == "responded"


def test_answer_is_json_where_the_schema_accepts_no_text(ada, rosa):
    request, pages = ask(ada), Pages(rosa)
    pages.open(page_of(request, view="respond"))
    assert len(re.findall(r'<input type="radio"\s+name="response_as"', pages.html)) == 2
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    ToolVersion.objects.filter(pk=request.tool_version_id).update(output_schema=schema)
    pages.open(page_of(request, view="respond"))
    assert '<input type="hidden" name="response_as" value="json">' in pages.html
    [answer] = re.findall(r'<textarea[^>]*name="response"[^>]*>(.*?)</textarea>', pages.html, re.S)
    assert json.loads(unescape(answer)) == {"count": 0}


@pytest.mark.parametrize("sent", ["seen", "stale", "late"])
def test_refused_form_keeps_its_input(held, rosa, tomas, sent):
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


def test_every_action_is_performed_and_confirmed(ada, rosa, tomas):
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


def test_invalid_action_forms_name_the_field(ada, rosa, vera):
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


def test_request_is_withdrawn_on_its_page(ada):
    request, mine = ask(ada), Pages(ada)
    mine.open(page_of(request))
    mine.send(page_of(request, "withdraw"), {"comment": "Not needed."})
    request.refresh_from_db()
    assert request.status == "withdrawn"
    mine.send(page_of(request, "explode"), status=404)


def test_self_review_is_shown(ada):
    set_rule(allow_self_review=True, stages=[{"group": "operator", "count": 1}])
    request, pages = ask(ada), Pages(ada)
    pages.open(page_of(request))
    assert "data-own" in pages.html
    decide(request, by=ada, decision=approval(request))
    assert "Their own request" in pages.open(page_of(request))


def test_private_arguments_are_loaded_in_one_query(ada, vera):
    """Three requests take as many queries as one."""
    requests, taken = [ask(ada) for _ in range(3)], list[int]()
    assert can_see_all(vera)  # which reads her groups, once
    for some in (requests, requests[:1]):
        with CaptureQueriesContext(connection) as queries:
            request_details = load_batch(vera, [each.public_id for each in some]).request_details
        assert [each.request for each in request_details] == some
        taken.append(len(queries))
    assert taken[0] == taken[1]


def test_batch_approval_that_the_policy_forbids(ada, rosa):
    """A request that is approved on its own opens as any other, if it is the only one."""
    requests, pages = [ask(ada), ask(ada, make_tool("other_note"))], Pages(rosa)
    alone = pages.client.get("/approvals/several/", {"item": requests[0].public_id})
    assert alone["Location"] == f"/approvals/?item={requests[0].public_id}"
    pages.open("/approvals/several/?" + "&".join(f"item={each.public_id}" for each in requests))
    assert 'name="verdict" value="reject"' in pages.html and 'name="verdict" value="approve"' not in pages.html
    fields = {"verdict": "approve", "item": [f"{each.public_id}:{each.digest}" for each in requests]}
    pages.send("/approvals/several/", fields, status=422)  # type: ignore[arg-type] # Django sends lists
    assert not Review.objects.exists()


def test_irreversible_batch_needs_a_second_press(ada, rosa):
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


def test_batch_page_selects_no_request(ada, rosa):
    set_rule(batchable=True)
    requests, pages = [ask(ada) for _ in range(3)], Pages(rosa)
    pages.open("/approvals/several/?" + "&".join(f"item={each.public_id}" for each in requests[1:]))
    assert CURRENT.findall(pages.html) == []
    fields = {"verdict": "approve", "item": [f"{each.public_id}:{each.digest}" for each in requests[1:]]}
    pages.send("/approvals/several/", fields)  # type: ignore[arg-type] # Django sends lists
    assert CURRENT.findall(pages.html) == []
    pages.open("/approvals/")
    assert CURRENT.findall(pages.html) == [f"q-{requests[0].public_id}"]


def test_invalid_selections_do_not_break_the_page(rosa):
    pages = Pages(rosa)
    for query in ("", "?item=x", "?item=%00", "?item=" + "a" * 5000):
        pages.open(f"/approvals/several/{query}")
        assert 'id="several"' in pages.html and 'name="verdict"' not in pages.html


def test_decision_returns_to_the_same_view(ada, rosa):
    first, second = ask(ada), ask(ada)
    pages = Pages(rosa)
    page = pages.open(f"/approvals/?status=needs_me&item={first.public_id}")
    assert "Needs me 2" in page
    fields = {"verdict": "approve", "seen_digest": first.digest, "status": "needs_me"}
    page = pages.send(page_of(first, "decision"), fields)
    assert "Needs me 1" in page and f'data-shown="q-{second.public_id}"' in pages.html


@pytest.mark.parametrize("verdicts", [[], [""], ["approved"], ["approve", "reject"], ["reject:everything"]])
def test_decision_without_one_known_verdict_is_not_recorded(held, ada, rosa, verdicts):
    """Neither of a request nor of several."""
    pages, path = Pages(rosa), page_of(held, "decision")
    pages.open(page_of(held))
    pages.send(path, {"verdict": verdicts, "seen_digest": held.digest, "comment": "A note"}, status=422)
    item = f"{held.public_id}:{held.digest}"
    pages.send("/approvals/several/", {"verdict": verdicts, "item": item, "comment": "A note"}, status=422)
    assert not Review.objects.exists()


@pytest.mark.parametrize("verdict", ["reject", "request_changes", "reject:cancel_plan"])
def test_refused_answer_is_still_the_answer_of_the_bar(held, rosa, verdict):
    """Without a reason, and with a digest that is not the request's."""
    set_rule(reason_required=True)
    held.policy_revision.refresh_from_db()
    pages = Pages(rosa)
    for fields, status in (({"seen_digest": held.digest}, 422), ({"seen_digest": "other", "comment": "No."}, 409)):
        pages.open(page_of(held))
        pages.send(page_of(held, "decision"), {"verdict": verdict, **fields}, status)
        assert f'data-intent="{verdict}"' in pages.html
        assert re.search(rf'value="{verdict}" data-answer="{verdict}"[^>]*hidden', pages.html) is None


def test_several_without_a_reason_are_still_being_rejected(ada, rosa):
    set_rule(reason_required=True)
    requests = [ask(ada), ask(ada)]
    pages = Pages(rosa)
    pages.open("/approvals/several/?" + "&".join(f"item={each.public_id}" for each in requests))
    items = [f"{each.public_id}:{each.digest}" for each in requests]
    pages.send("/approvals/several/", {"verdict": "reject", "item": items}, status=422)
    assert 'data-intent="reject"' in pages.html and not Review.objects.exists()


def test_expired_requests_are_not_answered_together(ada, rosa):
    set_rule(batchable=True)
    requests = [ask(ada) for _ in range(3)]
    ApprovalRequest.objects.filter(pk=requests[1].pk).update(expires_at=clock.now() - timedelta(seconds=1))
    pages = Pages(rosa)
    pages.open("/approvals/several/?" + "&".join(f"item={each.public_id}" for each in requests))
    assert re.findall(r'value="apr_[^":]+:[^"]+" (\w+)', pages.html) == ["checked", "disabled", "checked"]
    assert "<span data-checked>2</span>" in pages.html
