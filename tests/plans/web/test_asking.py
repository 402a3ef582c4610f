"""Tests of the pages for requests in words, without JavaScript."""

import html
import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User

from catalog.models import Call
from catalog.ui.labels import status_badge
from plans import states
from plans.models import ModelUse, Plan, PlanDraft
from plans.web.compose import ask_form
from tests.builders import make_plan, step, work_off
from tests.pages import Pages
from tests.plans.factories import send_request

pytestmark = pytest.mark.django_db(transaction=True)
GREET: dict[str, Any] = {
    "tool": "render_text",
    "args": {"template": "Hello, {name}!", "values": {"name": "Jo"}},
    "reason": "It greets.",
}
KEEP: dict[str, Any] = {
    "tool": "write_file",
    "args": {"path": "a.txt", "content": "hello"},
    "reason": "It must be kept.",
}
GOOD: dict[str, Any] = {"intent": "Greet Jo and keep it", "needs_tools": True, "tool_calls": [GREET, KEEP]}
BAD = {"intent": "Greet Jo", "needs_tools": True, "tool_calls": [GREET | {"tool": "rendr_text"}]}
WHICH = "Which e-mail address is yours?"
QUESTION = {"intent": "Send a badge", "needs_user_input": True, "input_request": WHICH}


def draft(pages: Pages, **fields: Any) -> Call:
    """Request a draft, let the planner answer, open the page and return the draft."""
    send_request(pages, **fields)
    call = Call.objects.filter(tool_name=states.DRAFT_TOOL).latest("pk")
    work_off(Plan.objects.get(public_id=call.plan_ref))
    pages.open(f"/ask/{call.public_id}/")
    return Call.objects.get(pk=call.pk)


def uses_on(pages: Pages) -> int:
    """Return how many model requests the open page shows."""
    return len(re.findall(r'id="use-\d+"', pages.html))


def count(pages: Pages) -> int:
    """Return how many earlier requests the open page shows."""
    return len(re.findall(r"<li data-item>", pages.html))


def test_request_becomes_preview(ada, scripted):
    scripted.says(GOOD)
    pages = Pages(ada)
    send_request(pages, strategy="plan_act_reflect")
    call = Call.objects.get(tool_name=states.DRAFT_TOOL)
    assert call.arguments_json == {"request": "Greet Jo", "strategy": "plan_act_reflect"}
    assert 'id="draft-asking"' in pages.html and f'action="/ask/{call.public_id}/cancel/"' in pages.html
    work_off(Plan.objects.get(public_id=call.plan_ref))
    page_text = pages.open(f"/ask/{call.public_id}/")
    for words in (GOOD["intent"], GREET["reason"], KEEP["reason"], "Safe", "Dangerous"):
        assert words in page_text
    use = ModelUse.objects.get()
    assert all(text in page_text for text in (f"{use.input_tokens:,}", f"{use.output_tokens:,}", use.model))
    assert 'id="draft-asking"' not in pages.html
    assert not Plan.objects.filter(kind="plan").exists()


def test_draft_is_started_once(ada, scripted):
    scripted.says(GOOD)
    pages = Pages(ada)
    call = draft(pages)
    address = f"/ask/{call.public_id}/start/"
    assert "Greet Jo and keep it" in pages.send(address)
    plan = Plan.objects.get(kind="plan")
    assert (plan.status, plan.request, plan.author) == ("in_progress", "Greet Jo", ada)
    pages.open(f"/ask/{call.public_id}/")
    assert f'href="/plans/{plan.public_id}/"' in pages.html and 'id="draft-start"' not in pages.html
    pages.send(address)
    assert 'id="goal"' in pages.html and Plan.objects.filter(kind="plan").count() == 1


def test_form_submitted_twice_makes_one_draft(ada, scripted):
    pages = Pages(ada)
    pages.open("/ask/")
    key = pages.field("key")
    for words in ("Greet Jo", "Greet Jo", "Greet Bo"):
        pages.open("/ask/")
        send_request(pages, request=words, key=key)
    assert Call.objects.filter(tool_name=states.DRAFT_TOOL).count() == 2


def test_earlier_request_shows_waiting_question(ada, scripted):
    scripted.says(QUESTION)
    pages = Pages(ada)
    call = draft(pages)
    pages.send(f"/ask/{call.public_id}/start/")
    work_off(Plan.objects.get(kind="plan"))
    (asked,) = ask_form.load_history(ada, "").rows
    assert asked.word == status_badge("in_progress", "input") != status_badge("in_progress", "approval")
    assert asked.word.label in pages.open("/ask/")


def test_invalid_requests_are_refused(ada, configured):
    pages = Pages(ada)
    for fields in ({"request": " \n"}, {"request": "x" * 8001}, {"request": "a\0b"}, {"strategy": "magic"}):
        send_request(pages, 422, **fields)
        assert f'href="#{next(iter(fields))}' in pages.html.split('id="problem"')[1].split("</ul>")[0]
        assert fields.get("request", "Greet Jo").strip() in html.unescape(pages.html)
    assert not Call.objects.exists()


def test_form_without_key_gets_new_key(ada, configured):
    pages = Pages(ada)
    send_request(pages, 409, key="")
    assert 'id="ask-wrong"' in pages.html and pages.field("key")


def test_missing_model_names_setting(ada, catalog, settings):
    settings.TOOLGATE_MODEL = ""
    pages = Pages(ada)
    text = pages.open("/ask/")
    assert 'id="no-model"' in pages.html and "TOOLGATE_MODEL" in text
    assert 'href="/plans/new/"' in pages.html.split('id="no-model"')[1].split("</div>")[0]
    assert "TOOLGATE_MODEL" in send_request(pages, 503)
    assert not Call.objects.exists()


def test_preview_shows_question(ada, scripted):
    scripted.says(QUESTION)
    pages = Pages(ada)
    draft(pages, request="Please resend my badge.")
    assert 'id="draft-question"' in pages.html and WHICH in pages.html
    assert 'id="draft-problems"' not in pages.html
    assert 'id="draft-start"' in pages.html and 'id="draft-start" disabled' not in pages.html


def test_draft_with_errors_can_be_edited(ada, scripted):
    scripted.says(BAD, BAD, BAD)
    pages = Pages(ada)
    call = draft(pages)
    assert 'id="draft-start" disabled' in pages.html and 'id="draft-problems"' in pages.html
    assert pages.context["page"].spent.times == 3
    page_text = pages.send("/plans/new/", {"draft": call.public_id, "do": "begin"})
    assert 'id="from-words"' in pages.html and "Greet Jo" in page_text and "rendr_text" in page_text
    assert ">proposed<" in pages.html
    kept = PlanDraft.objects.get()
    pages.send("/plans/new/", {"draft": call.public_id, "do": "begin"})
    assert PlanDraft.objects.get() == kept
    text = json.dumps({"goal": "Greet", "steps": [step(1)]})
    pages.send(f"/plans/drafts/{kept.public_id}/", {"text": text, "do": "text", "view": "json", "version": "1"})
    assert ">proposed<" not in pages.html
    pages.send(f"/plans/drafts/{kept.public_id}/", {"do": "start", "version": "2"})
    plan = Plan.objects.get(kind="plan")
    assert (plan.goal, plan.request) == ("Greet", "Greet Jo")
    pages.open(f"/ask/{call.public_id}/")
    assert f'href="/plans/{plan.public_id}/"' in pages.html
    pages.send("/plans/new/", {"draft": call.public_id, "do": "begin"}, 409)
    assert Plan.objects.filter(kind="plan").count() == 1


def test_failed_draft_shows_reason(ada, scripted):
    """The reason contains no text of the provider."""
    scripted.says("no JSON", "no JSON", "<script>no</script>")
    pages = Pages(ada)
    call = draft(pages)
    assert call.status == "failed"
    assert 'id="no-draft"' in pages.html and "<script>no" not in pages.html
    assert 'id="asking"' in pages.html


def test_draft_is_cancelled_by_requester(ada, rosa, configured):
    pages, other = Pages(ada), Pages(rosa)
    send_request(pages)
    call = Call.objects.get(tool_name=states.DRAFT_TOOL)
    text = other.open(f"/ask/{call.public_id}/")
    assert "Greet Jo" in text and 'id="draft-focus"' not in other.html and 'id="asking"' not in other.html
    other.open("/ask/")
    other.send(f"/ask/{call.public_id}/cancel/", status=403)
    assert Call.objects.get().status != "cancelled"
    pages.send(f"/ask/{call.public_id}/cancel/")
    assert 'id="no-draft"' in pages.html and Call.objects.get().status == "cancelled"


def test_others_cannot_start_or_edit_draft(ada, ben, rosa, vera, scripted):
    scripted.says(GOOD)
    call = draft(Pages(ada))
    for person, status in ((rosa, 403), (ben, 404), (vera, 404)):
        pages = Pages(person)
        pages.open("/ask/")
        pages.send(f"/ask/{call.public_id}/start/", status=status)
        pages.send("/plans/new/", {"draft": call.public_id, "do": "begin"}, 404 if person == ben else 403)
    assert not Plan.objects.filter(kind="plan").exists()


def test_asking_needs_role(vera, configured):
    pages = Pages(vera)
    pages.open("/ask/")
    assert 'id="no-role"' in pages.html and 'data-go="k"' not in pages.html
    send_request(pages, 403)
    assert not Call.objects.exists()


def test_polling_returns_only_changes(ada, scripted):
    scripted.says(GOOD)
    pages = Pages(ada)
    send_request(pages)
    call = Call.objects.get(tool_name=states.DRAFT_TOOL)
    found = re.search(r'hx-get="([^"]+)"', pages.html.split('id="draft"')[1])
    assert found is not None
    wanted = {"HX-Request": "true", "HX-Target": "draft"}
    pages.open(found[1], 204, wanted)
    work_off(Plan.objects.get(public_id=call.plan_ref))
    pages.open(found[1], headers=wanted)
    for present in ('id="draft-said"', 'id="draft-step-3"'):
        assert present in pages.html
    for absent in ("<html", "every 1s", 'id="draft-asking"'):
        assert absent not in pages.html


def test_earlier_requests_have_pages(ada, ben, configured, monkeypatch):
    monkeypatch.setattr(ask_form, "PAGE_SIZE", 2)
    pages = Pages(ada)
    pages.open("/ask/")
    assert count(pages) == 0
    for words in ("One", "Two", "Three"):
        pages.open("/ask/")
        send_request(pages, request=words)
    send_request(Pages(ben), request="Foreign")
    text = pages.open("/ask/")
    assert count(pages) == 2 and text.index("Three") < text.index("Two") and "Foreign" not in text
    older = re.search(r'href="([^"]+)#asked" rel="next"', pages.html)
    assert older is not None
    assert "One" in pages.open(older[1]) and count(pages) == 1 and 'href="/ask/#asked"' in pages.html
    for cursor in ("x", "W2ZhbHNlLCJ4IiwxXQ=="):
        pages.open(f"/ask/?before={cursor}")
        assert count(pages) == 2


def test_reply_is_shown_with_its_request(ada, scripted):
    scripted.says(GOOD)
    pages = Pages(ada)
    pages.send(f"/ask/{draft(pages).public_id}/start/")
    Plan.objects.filter(kind="plan").update(reply="Jo was greeted.")
    assert "Jo was greeted." in pages.open("/ask/")
    assert f'href="/plans/{Plan.objects.get(kind="plan").public_id}/"' in pages.html


@pytest.mark.parametrize("example", ask_form.EXAMPLES)
def test_examples_fill_the_form(ada, catalog, example):
    pages = Pages(ada)
    pages.open(f"/ask/?example={example}")
    wanted = ask_form.EXAMPLES[example]
    assert f">{wanted.request}</textarea>" in pages.html
    assert re.search(f'value="{wanted.strategy}"[^>]* checked', pages.html)


def test_prompts_are_shown_to_owner_and_administrators(ada, ben, admin, scripted):
    scripted.says(GOOD | {"intent": "<script>alert(1)</script>"})
    pages = Pages(ada)
    call = draft(pages, request="Greet </pre><b>Jo</b>")
    assert f'href="/plans/{call.plan_ref}/prompts/"' in pages.html
    pages.send(f"/ask/{call.public_id}/start/")
    plan = Plan.objects.get(kind="plan")
    assert f'href="/plans/{plan.public_id}/prompts/"' in pages.html
    for reader in (ada, admin):
        said = Pages(reader)
        words = said.open(f"/plans/{plan.public_id}/prompts/")
        assert uses_on(said) == 1 and "Greet </pre><b>Jo</b>" in words
        assert "<script>alert" not in said.html and "<b>Jo" not in said.html
        said.open(f"/ask/{call.public_id}/")
        assert f'href="/plans/{plan.public_id}/prompts/"' in said.html
    stranger = Pages(ben)
    stranger.open(f"/plans/{plan.public_id}/prompts/", 403)
    assert "/prompts/" not in stranger.open(f"/plans/{plan.public_id}/") + stranger.html


def test_plan_without_prompts_has_no_link(ada, catalog):
    plan, pages = make_plan(ada, step(1)), Pages(ada)
    pages.open(f"/plans/{plan.public_id}/")
    assert "/prompts/" not in pages.html
    pages.open(f"/plans/{plan.public_id}/prompts/?after=x")
    assert uses_on(pages) == 0


def a_use(plan: Plan, call: Call, **fields: Any) -> ModelUse:
    """Store one model request."""
    told = {"purpose": "agent", "model": "m", "prompt": "[]", "latency_ms": 1, "at": plan.created_at} | fields
    return ModelUse.objects.create(plan=plan, call=call, **told)


def test_prompts_have_pages_and_are_complete(ada: User, configured: None):
    send_request(Pages(ada))
    call = Call.objects.get()
    plan = Plan.objects.get(public_id=call.plan_ref)
    a_use(plan, call, prompt=json.dumps([{"by": "user", "text": "x" * 5000}]), error="The provider is away.")
    a_use(plan, call, prompt="{not json", answer=json.dumps(["odd", {"a": 1}]))
    for _ in range(10):
        a_use(plan, call)
    pages = Pages(ada)
    text = pages.open(f"/plans/{plan.public_id}/prompts/")
    assert "x" * 5000 in text and "<details" in pages.html
    assert "{not json" in text and "odd" in text and "The provider is away." in text
    later = re.search(r'href="([^"]+)" rel="next"', pages.html)
    assert later is not None
    pages.open(later[1])
    assert uses_on(pages) == 2
