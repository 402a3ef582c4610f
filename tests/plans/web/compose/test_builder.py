"""Tests of the pages of the plan builder: beginnings, one draft in three views, changes without scripts, conflicts."""

import html
import json
import re
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection

from catalog.core.yaml_documents import parse_yaml
from plans.actions.drafts import DraftSource, change_draft, create_draft, read_draft
from plans.models import Plan, PlanDraft
from plans.web.compose import builder_views
from tests.builders import act, make_draft, make_plan
from tests.conftest import person
from tests.pages import Pages, without_nul

NEW = "/plans/new/"


def document(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"goal": "Try it", "steps": [act(number, text) for number, text in enumerate(texts, 1)], **fields}


def path(draft: PlanDraft) -> str:
    return f"/plans/drafts/{draft.public_id}/"


def stored(draft: PlanDraft) -> Any:
    draft.refresh_from_db()
    return read_draft(draft)


def numbers(draft: PlanDraft) -> list[int]:
    return [step["step_id"] for step in stored(draft)["steps"]]


@pytest.fixture
def pages(stage, ada) -> Pages:
    return Pages(ada)


def send(pages: Pages, draft: PlanDraft, status: int = 200, **fields: Any) -> str:
    """Send a form of the draft's page and return the page that comes."""
    pages.open(path(draft))
    pages.send(path(draft), fields, status)
    return pages.html


def text_at(pages: Pages, draft: PlanDraft, view: str) -> str:
    """Return the text in the editor."""
    found = pages.client.get(f"{path(draft)}?view={view}").content.decode()
    return html.unescape(re.search(r'<textarea id="pj".*?>\n?(.*?)</textarea>', found, re.DOTALL)[1])  # type: ignore[index]


def test_a_draft_is_begun_empty_from_an_example_a_plan_and_a_text(pages, ada):
    plan = make_plan(ada, act(1, "a"), goal="Look up the margins")
    assert "Look up the margins" in pages.open(f"{NEW}?q=margins")
    for fields in (
        {"goal": "Mine"},
        {"starter": "figures"},
        {"plan": plan.public_id},
        {"text": json.dumps(document("a"))},
        {"text": "goal: As YAML\nsteps: []"},
        {"agent": "nobody", "task": "Do it"},
    ):
        pages.open(NEW)
        pages.send(NEW, {"do": "begin", **fields})
    drafts = PlanDraft.objects.order_by("pk")
    assert [draft.goal for draft in drafts][:1] == ["Mine"]
    assert [draft.goal for draft in drafts][2:] == ["Look up the margins", "Try it", "As YAML", "Do it"]
    assert (drafts[1].starter, drafts[2].cloned_from) == ("figures", plan)
    pages.open(NEW)
    assert all(path(draft) in pages.html for draft in drafts)
    pages.open(path(drafts[1]))


def test_a_text_that_cannot_be_read_is_kept(pages):
    pages.open(NEW)
    assert "not yet taken over" in pages.send(NEW, {"do": "begin", "text": '{"goal": "half'})
    draft = PlanDraft.objects.get()
    assert text_at(pages, draft, "json") == '{"goal": "half'
    send(pages, draft, 422, do="text", view="json", text='{"goal": "half a', version=1)
    assert PlanDraft.objects.get().unread_text == '{"goal": "half a'
    assert "could not be read" in send(pages, draft, 409, do="start", version=1)
    send(pages, draft, do="text", view="json", text='{"goal": "whole", "steps": []}', version=1)
    assert (stored(draft)["goal"], PlanDraft.objects.get().unread_text) == ("whole", "")


def test_steps_are_added_copied_moved_connected_and_deleted_without_scripts(pages, ada):
    draft = create_draft(document("a", "b"), by=ada)
    send(pages, draft, do="add:1")
    assert numbers(draft) == [1, 3, 2]
    send(pages, draft, do="duplicate:2")
    send(pages, draft, do="up:4")
    assert numbers(draft) == [1, 3, 4, 2]
    send(pages, draft, do="connect", number="2", needs="4")
    assert stored(draft)["steps"][3]["dependencies"] == [4]
    send(pages, draft, do="remove:4")
    assert "which does not exist" in pages.html and "Deleted step 4" in pages.html
    fix = re.search(r'name="fix"\s+value="([^"]+)"', pages.html)
    assert fix is not None
    send(pages, draft, fix=fix[1])
    assert stored(draft)["steps"][2]["dependencies"] == []
    send(pages, draft, 409, do="remove:9")
    send(pages, draft, do="undo", version=draft.version)
    assert stored(draft)["steps"][2]["dependencies"] == [4]


def test_json_and_yaml_are_views_of_one_draft(pages, ada):
    draft = create_draft(document("a"), by=ada)
    text = text_at(pages, draft, "yaml")
    assert parse_yaml(text) == document("a")
    send(pages, draft, do="text", view="yaml", text=text.replace("Try it", "Changed"), version=1)
    assert json.loads(text_at(pages, draft, "json"))["goal"] == "Changed"
    for kind, read in (("json", json.loads), ("yaml", parse_yaml)):
        assert read(pages.client.get(f"{path(draft)}plan.{kind}").content.decode()) == stored(draft)


def test_a_conflict_shows_both_sides_and_keeps_the_chosen_one(pages, ada, ben):
    draft = create_draft(document("a", "b"), by=ada)
    theirs, mine = document("theirs", "b"), document("mine", "B")
    change_draft(draft, base_version=1, document=theirs, by=ben, summary="Changed step 1")
    fields: dict[str, Any] = {"view": "json", "text": json.dumps(mine), "version": 1}
    page = send(pages, draft, 409, do="text", **fields)
    assert "&quot;mine&quot;" in page and "&quot;theirs&quot;" in page and 'value="steps.1.parameters.value"' in page
    choice: dict[str, Any] = {"path-0": "steps.1.parameters.value", "keep-0": "mine"}
    send(pages, draft, do="resolve", **fields, **choice)
    assert stored(draft) == mine


def test_one_choice_decides_the_conflicts_that_are_not_listed(pages, ada, ben, monkeypatch):
    monkeypatch.setattr(builder_views, "MAX_CHOICES", 1)
    draft = create_draft(document("a", "b", "c"), by=ada)
    change_draft(draft, base_version=1, document=document("x", "y", "z"), by=ben, summary="Changed them")
    fields: dict[str, Any] = {"view": "json", "text": json.dumps(document("A", "B", "C")), "version": 1}
    assert "2 other parts" in send(pages, draft, 409, do="text", **fields)
    choice = {"path-0": "steps.1.parameters.value", "keep-0": "mine", "keep-others": "theirs"}
    send(pages, draft, do="resolve", **(fields | choice))
    assert stored(draft) == document("A", "y", "z")


def test_a_secret_of_somebody_else_is_called_theirs(pages, ada, ben):
    draft = create_draft(document("ghp_" + "a1B2" * 9), by=ada)
    pages.open(path(draft))
    assert "typed a secret here" not in pages.html
    others = Pages(ben)
    for address in (path(draft), f"{path(draft)}?view=yaml"):
        assert "Ada typed a secret here" in others.open(address)


def test_two_copies_of_a_planners_draft_are_both_started(pages, ada):
    draft = create_draft(document("a"), by=ada, source=DraftSource(call=make_draft(ada), is_proposal=True))
    send(pages, draft, do="copy")
    for each in PlanDraft.objects.order_by("pk"):
        send(pages, each, do="start", version=1)
    assert not PlanDraft.objects.filter(plan=None).exists()


def test_news_of_others_leave_out_what_this_person_saved(pages, ada, ben):
    draft = create_draft(document("a"), by=ada)
    ask = {"HX-Request": "true", "HX-Target": "draft-news"}
    PlanDraft.objects.update(sealed="")  # the versions are compared before a text is decrypted
    assert pages.client.get(f"{path(draft)}?seen=1", headers=ask).status_code == 204
    PlanDraft.objects.update(sealed=draft.sealed)
    change_draft(draft, base_version=1, document=document("a", "b"), by=ben, summary="Added step 2")
    parts = pages.client.get(f"{path(draft)}?seen=1&own=1", headers=ask).content.decode()
    assert "Added step 2" in parts and 'id="draft-canvas"' in parts and 'id="goal-form"' not in parts


def test_a_started_draft_is_its_plan_and_leaves_the_list(pages, ada):
    draft = create_draft(document("a"), by=ada)
    send(pages, draft, do="start", version=1)
    plan = Plan.objects.get(kind="plan")
    assert pages.client.get(path(draft))["Location"] == f"/plans/{plan.public_id}/"
    pages.open(NEW)
    assert path(draft) not in pages.html


def test_who_may_see_a_draft(stage, keepers, ada, ben, vera):
    draft = create_draft(document("a"), by=ada)
    Pages(ben).open(path(draft))
    Pages(vera).open(path(draft), 404)
    Pages(person("nina")).open(path(draft), 404)
    copied = create_draft(document("a"), by=ada, source=DraftSource(plan=make_plan(ada, act(1, "a"))))
    Pages(ben).open(path(copied), 404)
    send(Pages(ada), copied, do="copy")
    Pages(ben).open(path(PlanDraft.objects.latest("pk")), 404)
    others = Pages(ben)
    assert "Only the owner" in send(others, draft, 409, do="delete")


def test_others_do_not_see_what_was_private_in_an_earlier_version(pages, ada, ben):
    private = {"goal": "Try it", "steps": [act(1, "Ada's number", "private")]}
    draft = create_draft(private, by=ada)
    Pages(ben).open(path(draft), 404)
    proposal = {"purpose": "Look Ada up", "items": [{"tool": "private", "arguments": [], "count": 1}], "minutes": 5}
    proposes = {"goal": "Try it", "steps": [act(1, tool="propose_envelope", parameters=proposal)]}
    Pages(ben).open(path(create_draft(proposes, by=ada)), 404)
    change_draft(draft, base_version=1, document=document("public"), by=ada, summary="Changed the tool")
    others = Pages(ben)
    fields: dict[str, Any] = {"goal": "Conflict", "view": "json"}
    assert "number" not in send(others, draft, do="goal", version=1, **fields)
    others.send(f"{path(draft)}steps/1/", {"do": "update", "kind": "note", "base": "1"})
    assert "number" not in others.html


def test_only_its_author_sees_a_text_that_cannot_be_read(pages, ada, ben):
    draft, others = create_draft(document("a"), by=ada), Pages(ben)
    send(pages, draft, 422, do="text", view="yaml", text="goal: [Bearer token", version=1)
    assert "Bearer token" in text_at(pages, draft, "yaml") and "Bearer" not in text_at(others, draft, "yaml")
    assert "somebody else" in send(others, draft, 422, do="text", view="json", text="{mine", version=1)
    assert "{mine" in others.html
    send(others, draft, do="text", view="json", text=json.dumps(document("b")), version=1)
    assert PlanDraft.objects.get().unread_text == "goal: [Bearer token"
    assert "discard it first" in send(others, draft, 409, do="start", version=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"goal": "g", "steps": [], "memory": {"a": [0] * 150_000}}), "At most 1,048,576"),
        (json.dumps({"goal": "g", "steps": [{}] * 1001}), "at most 500"),
    ],
    ids=["large once indented", "steps"],
)
def test_a_text_that_could_not_be_opened_again_is_refused_and_kept(pages, ada, text, said):
    draft = create_draft(document("a"), by=ada)
    pages.open(path(draft))
    fields = {"do": "text", "view": "json", "text": text, "version": "1", "csrfmiddlewaretoken": pages._token()}
    response = pages.client.post(path(draft), fields)
    assert response.status_code in (413, 422) and said in response.content.decode()
    assert stored(draft) == document("a") and draft.unread_text == text


def test_a_deleted_draft_is_restored_by_its_owner(pages, ada, ben):
    draft = create_draft(document("a"), by=ada)
    send(pages, draft, do="delete")
    assert path(draft) not in pages.html.partition('id="drafts"')[2]
    Pages(ben).open(path(draft), 404)
    send(pages, draft, do="restore")
    pages.open(NEW)
    assert path(draft) in pages.html


@pytest.mark.parametrize(
    "steps",
    [
        [act(1, "a", dependencies=[2]), act(2, "b", dependencies=[1])],
        [act(number, "a", dependencies=[number - 1] if number > 1 else []) for number in range(1, 501)],
        [act(number, "a") for number in range(1, 501)],
        [
            {**act(1, "مرحبا"), "description": "👩‍👩‍👧 مرحبا " * 70},
            {"step_id": 2, "description": "x", "tool": "vanished"},
        ],
        [3, {"step_id": 1}, {"step_id": 1}, {"step_id": "x", "dependencies": "y", "tool": [4]}, {"step_id": -1}],
        "none",
    ],
    ids=["cycle", "line", "column", "labels", "broken", "no steps"],
)
def test_documents_of_every_shape_are_shown(pages, ada, ben, steps):
    draft = create_draft({"goal": 4 if steps == "none" else "Try it", "steps": steps}, by=ada)
    Pages(ben).open(path(draft))
    for view in ("form", "json", "yaml"):
        said = pages.open(f"{path(draft)}?view={view}&step=1")
    if len(steps) == 2 and steps[0].get("dependencies"):
        assert "These steps wait for each other: 1 → 2 → 1." in said


@pytest.mark.parametrize("field", ["tool", "agent", "expected_key"])
def test_the_character_nul_in_a_draft_is_compared_with_no_column(pages, ada, ben, field):
    draft = create_draft({**document("a"), "steps": [{**act(1, "a"), field: "a\0b"}, act(2, "b")]}, by=ada)
    with connection.execute_wrapper(without_nul):
        Pages(ben).open(f"{path(draft)}?step=1")
        pages.open(f"{path(draft)}steps/1/")
        for name in ("tool", "path", "try"):
            pages.send(f"{path(draft)}steps/1/", {"do": f"panel:{name}", "kind": "tool", "tool": "a\0b"})


@pytest.mark.parametrize("field", ["plan", "draft", "agent", "starter"])
def test_the_character_nul_begins_no_draft(pages, field):
    with connection.execute_wrapper(without_nul):
        pages.open(f"{NEW}?q=a%00b")
        pages.client.raise_request_exception = True
        pages.send(NEW, {"do": "begin", field: "a\0b"}, 404 if field in ("plan", "draft") else 200)


def test_what_a_model_proposed_is_marked_until_it_is_changed(pages, ada):
    draft = create_draft(document("a", "b"), by=ada, source=DraftSource(is_proposal=True))
    pages.open(path(draft))
    assert pages.html.count(">proposed<") == 2
    changed = document("a", "b")
    changed["steps"][0] = {"step_id": 1, "description": "Other"}
    change_draft(draft, base_version=1, document=changed, by=ada, summary="Changed step 1")
    pages.open(path(draft))
    assert pages.html.count(">proposed<") == 1


def test_a_draft_whose_key_is_gone_says_so(pages, ada, settings):
    draft = create_draft(document("a"), by=ada)
    settings.TOOLGATE_SECRET_KEYS = [Fernet.generate_key().decode()]
    pages.open(path(draft), 302)
    assert "no longer has" in pages.open(NEW)
