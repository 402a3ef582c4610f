"""Tests of retry, skip, clone and change on the plan's page."""

import html
import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from catalog.errors import ToolError
from plans.actions.change import change_plan, read_plan_change
from plans.actions.control import cancel_plan
from plans.engine.loop import claim_work
from plans.models import Plan
from plans.store.plan_documents import step_documents
from plans.store.requesters import Requester
from plans.web.fragments import plan_source
from tests.builders import act, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.pages import Pages
from tests.plans.factories import act_raising


def path_of(plan: Plan, rest: str = "") -> str:
    """Return the URL of the plan's page, or of a path below it."""
    return f"/plans/{plan.public_id}/{rest}"


@pytest.fixture
def failed(stage: Any, ada: User) -> Plan:
    """A plan whose second step failed and whose third step is blocked."""
    stage.acts["keeping"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1), act(2, tool="keeping", dependencies=[1]), act(3, dependencies=[2])))
    stage.acts.clear()
    return plan


@pytest.fixture
def waiting(stage: Any, ada: User) -> Plan:
    """A plan whose first step waits for approval, with one step after it."""
    return work_off(make_plan(ada, act(1, tool="dangerous"), act(2, "old", dependencies=[1])))


def test_owner_retries_failed_plan(failed, ada):
    pages = Pages(ada)
    assert 'id="retry"' in (pages.open(path_of(failed)), pages.html)[1]
    pages.send(path_of(failed, "retry/"))
    failed.refresh_from_db()
    assert (failed.status, step_of(failed, 2).status, 'id="retry"' in pages.html) == ("in_progress", "pending", False)


def test_failed_step_is_retried_from_its_card(failed, ada):
    pages = Pages(ada)
    for number, is_offered in ((3, False), (2, True)):
        pages.open(path_of(failed, f"?step={number}"))
        assert ('id="retry-step"' in pages.html, 'id="skip"' in pages.html) == (is_offered, is_offered)
    pages.send(path_of(failed, "retry/"), {"step": "2"})
    assert work_off(failed).status == "completed"
    pages.open(path_of(failed))
    pages.send(path_of(failed, "retry/"), {"step": "2"}, status=409)
    assert step_of(failed, 2).status == "completed"


def test_failed_step_is_retried_with_other_arguments(failed, ada, ben):
    pages, address = Pages(ada), path_of(failed, "steps/2/input/")
    pages.open(path_of(failed, "?step=2"))
    assert f'href="{address}"' in pages.html
    pages.open(address)
    pages.send(address, {"do": "send", "mode": "json", "json": '{"valu": 1}'}, status=422)
    assert step_of(failed, 2).status == "failed"
    pages.send(address, {"do": "send", "mode": "json", "json": '{"value": "other"}'})
    assert step_of(failed, 2).status == "pending"
    assert (work_off(failed).status, call_of(failed, 2).arguments_json) == ("completed", {"value": "other"})
    pages.open(address, status=409)
    Pages(ben).open(address, status=403)


def test_step_is_skipped_with_reason(waiting, ada, vera):
    pages = Pages(ada)
    pages.open(path_of(waiting, "?step=1"))
    assert 'id="skip"' in pages.html
    pages.send(path_of(waiting, "steps/1/skip/"), {"comment": " "}, status=422)
    assert step_of(waiting).status == "in_progress"
    assert "Done by hand." in pages.send(path_of(waiting, "steps/1/skip/"), {"comment": "Done by hand."})
    assert (step_of(waiting).status, request_of(waiting).status) == ("completed", "withdrawn")
    assert "Done by hand." in Pages(vera).open(path_of(waiting))
    pages.send(path_of(waiting, "steps/1/skip/"), {"comment": "Again"}, status=409)


def test_plan_is_cloned(failed, ada, ben, vera):
    pages = Pages(ben)
    pages.open(path_of(failed))
    pages.send(path_of(failed, "clone/"))
    made, owner = Plan.objects.get(author=ben), Pages(ada)
    assert ('id="kin"' in pages.html, path_of(failed) in pages.html, made.status) == (True, True, "pending")
    owner.open(path_of(failed))
    assert ('id="kin"' in owner.html, path_of(made) in owner.html) == (True, True)
    reader = Pages(vera)
    assert 'id="clone"' not in (reader.open(path_of(failed)), reader.html)[1]
    reader.open("/plans/new/")
    reader.send(path_of(failed, "clone/"), status=403)
    assert Plan.objects.count() == 2


def test_clone_revealing_private_values_is_refused(stage, ada, ben):
    plan = work_off(make_plan(ada, act(1, "jo@example.org", "private")))
    pages = Pages(ben)
    assert 'id="clone"' not in (pages.open(path_of(plan)), pages.html)[1]
    pages.open("/plans/new/")
    pages.send(path_of(plan, "clone/"), status=403)
    assert Plan.objects.get() == plan


def test_clone_of_invalid_plan_is_refused(failed, ada):
    failed.steps.filter(step_id=2).update(tool="gone")
    pages = Pages(ada)
    pages.open(path_of(failed))
    assert "gone" in pages.send(path_of(failed, "clone/"), status=422)
    assert Plan.objects.get() == failed


def text_of(pages: Pages, plan: Plan) -> dict[str, Any]:
    """Open the change page of a plan and return the text of the editor."""
    pages.open(path_of(plan, "change/"))
    text = pages.html.partition('id="pj"')[2].partition(">")[2].partition("</textarea>")[0]
    document: dict[str, Any] = json.loads(html.unescape(text))
    return document


def codes_on(pages: Pages) -> list[str]:
    """Return the codes of the errors on the open page."""
    return re.findall(r'data-problem="(\w+)" data-severity="error"', pages.html)


def send_change(pages: Pages, plan: Plan, document: Any, *, do: str = "change", status: int = 200) -> str:
    """Submit a text with the hidden fields of the open page."""
    fields = {name: pages.field(name) for name in ("listed", "seen")}
    return pages.send(path_of(plan, "change/"), {**fields, "text": json.dumps(document, indent=1), "do": do}, status)


def test_plan_is_changed_as_text(waiting, ada):
    pages = Pages(ada)
    document = text_of(pages, waiting)
    assert [step["step_id"] for step in document["steps"]] == [2]
    document["steps"] = [{**document["steps"][0], "description": "Newer"}, act(3, dependencies=[2])]
    send_change(pages, waiting, document, do="check")
    assert (codes_on(pages), list(step_documents(waiting))) == ([], [1, 2])
    send_change(pages, waiting, document)
    assert (list(step_documents(waiting)), step_documents(waiting)[2]["description"]) == ([1, 2, 3], "Newer")
    text_of(pages, waiting)
    send_change(pages, waiting, {"goal": "Try", "steps": [step_documents(waiting)[3] | {"dependencies": []}]})
    assert (list(step_documents(waiting)), Plan.objects.get().goal) == ([1, 3], "Try")


def test_omitted_field_is_cleared(waiting, ada):
    change_plan(waiting, read_plan_change({"edit": [{"step_id": 2, "expected_key": "x"}]}), by=Requester(ada))
    pages = Pages(ada)
    document = text_of(pages, waiting)
    del document["steps"][0]["expected_key"]
    send_change(pages, waiting, document)
    assert "expected_key" not in step_documents(waiting)[2]


def test_unchanged_text_records_no_event(waiting, ada):
    pages = Pages(ada)
    send_change(pages, waiting, text_of(pages, waiting))
    assert not waiting.events.filter(type="plan.changed").exists()


def test_problems_are_shown_with_their_lines(waiting: Plan, ada: User) -> None:
    wrong: tuple[tuple[Any, str], ...] = (
        ({"steps": [act(2, tool="none_such", dependencies=[1])]}, "unknown_tool"),
        ({"steps": [act(2, dependencies=[9])]}, "unknown_dependency"),
        ({"steps": [act(2, dependencies=[1]), act(2)]}, "duplicate_step_id"),
        ({"steps": [act(1, "again")]}, "step_started"),
        ({"steps": {}}, "type"),
        ({"steps": [1]}, "type"),
        ({"colour": 1, "steps": []}, "unknown_field"),
        ([], "type"),
    )
    pages, before = Pages(ada), step_documents(waiting)
    text_of(pages, waiting)
    for document, code in wrong:
        send_change(pages, waiting, document, do="check")
        assert codes_on(pages) == [code] and "data-line=" in pages.html
    assert step_documents(waiting) == before


def test_problems_prevent_change(waiting, ada):
    pages = Pages(ada)
    document = text_of(pages, waiting)
    document["steps"].append(act(3, "typed by hand", tool="none_such"))
    assert "typed by hand" in send_change(pages, waiting, document, status=422)
    assert pages.send(path_of(waiting, "change/"), {"text": "{", "do": "change"}, status=422)


def test_edit_of_started_step_is_conflict(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    change_plan(plan, read_plan_change({"add": [act(2), act(3, dependencies=[1])]}), by=Requester(ada))
    pages = Pages(ada)
    document = text_of(pages, plan)
    claim_work(plan.pk, owner="tests")
    kept, new = document["steps"][0], {**document["steps"][1], "description": "Newer"}
    edited = {**document, "steps": [{**kept, "description": "typed by hand"}, new]}
    page_text = send_change(pages, plan, edited, status=409)
    assert (codes_on(pages), "typed by hand" in page_text) == (["step_started"], True)
    assert pages.field("listed") == "3"
    send_change(pages, plan, {**document, "steps": [kept, new]})
    assert step_documents(plan)[3]["description"] == "Newer"


def test_removal_of_started_step_is_conflict(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    change_plan(plan, read_plan_change({"add": [act(2), act(3, dependencies=[1])]}), by=Requester(ada))
    pages = Pages(ada)
    document = text_of(pages, plan)
    claim_work(plan.pk, owner="tests")
    document["steps"] = [{**document["steps"][1], "description": "Newer"}]
    send_change(pages, plan, document, status=409)
    assert list(step_documents(plan)) == [1, 2, 3]
    send_change(pages, plan, document)
    assert (list(step_documents(plan)), step_documents(plan)[3]["description"]) == ([1, 2, 3], "Newer")


def test_concurrent_change_is_conflict_once(waiting, ada):
    pages = Pages(ada)
    document = text_of(pages, waiting)
    change_plan(waiting, read_plan_change({"add": [act(5)]}), by=Requester(ada))
    document["goal"] = "Another"
    send_change(pages, waiting, document, status=409)
    assert Plan.objects.get().goal == "Try it"
    send_change(pages, waiting, document)
    assert (list(step_documents(waiting)), Plan.objects.get().goal) == ([1, 2, 5], "Another")


def test_buttons_depend_on_permissions(waiting, failed, ada, ben, request):
    seen = {}
    admin, vera = (request.getfixturevalue(name) for name in ("admin", "vera"))
    for who in (ada, admin, ben, vera):
        pages, found = Pages(who), set()
        for plan in (waiting, failed):
            pages.open(path_of(plan, "?step=2"))
            found |= {
                each for each in ("retry", "clone", "change", "skip", "retry-step") if f'id="{each}"' in pages.html
            }
        seen[who.username] = found
    everything = {"retry", "clone", "change", "skip", "retry-step"}
    assert seen == {"ada": everything, "admin": everything, "ben": {"clone"}, "vera": set()}
    others = Pages(ben)
    others.open("/plans/new/")
    for action in ("retry/", "steps/2/skip/"):
        others.send(path_of(waiting, action), {"comment": "x"}, status=403)
    others.open(path_of(waiting, "change/"), status=409)


@pytest.mark.parametrize("roles", [[], ["reviewer"]])
def test_owner_without_role_cannot_continue_plan(waiting, failed, ada, roles):
    pages = Pages(ada)
    document = text_of(pages, waiting)
    fields = {name: pages.field(name) for name in ("listed", "seen")} | {"text": json.dumps(document)}
    ada.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
    for plan, action in ((failed, "retry/"), (waiting, "steps/2/skip/")):
        pages.send(path_of(plan, action), {"comment": "x"}, status=403)
    for do in ("change", "check"):
        pages.send(path_of(waiting, "change/"), {**fields, "do": do}, status=409)
    pages.open(path_of(waiting, "?step=2"))
    assert not any(f'id="{each}"' in pages.html for each in ("change", "skip", "retry", "start"))
    assert ('id="pause"' in pages.html, events_of(waiting)[-1]) == (True, "1 step.waiting")


def test_unchangeable_plan_has_no_link(stage, ada):
    closed = make_plan(ada, act(1), can_modify=False, start=False)
    over = make_plan(ada, act(1), start=False)
    cancel_plan(over, by=Requester(ada))
    for plan in (closed, over):
        pages = Pages(ada)
        assert 'id="change"' not in (pages.open(path_of(plan)), pages.html)[1]
        pages.open(path_of(plan, "change/"), status=409)


def test_changes_are_sent_to_open_pages(waiting, ada):
    before = plan_source(waiting.public_id).draw().fragments
    change = {"goal": "Other", "add": [act(3)], "remove": [2]}
    change_plan(waiting, read_plan_change(change), by=Requester(ada))
    after = plan_source(waiting.public_id).draw().fragments
    assert ("data-gone" in after["s2"], 'data-into="steps"' in after["s3"]) == (True, True)
    assert "Other" in after["goal"]
    assert [name for name in ("look-2",) if before[name] != after[name]] == ["look-2"]
    assert call_of(waiting).status == "held"
