"""Tests of the list of plans and the plan's page, without JavaScript."""

import html
import json
import re

import pytest
from django.contrib.auth.models import User

from approvals.models import AuditEntry
from catalog.errors import EffectUnknown
from catalog.models import Call
from catalog.results import format_success_response
from plans.actions.control import cancel_plan
from plans.models import MemoryItem, Plan
from plans.store.requesters import Requester
from tests.builders import act, approve, call_of, make_plan, request_of, step, step_of, work_off, write_step
from tests.conftest import person
from tests.pages import Pages, compact, words
from tests.plans.factories import act_raising
from tests.tools_for_tests import Stage

pytestmark = pytest.mark.usefixtures("catalog", "workspace")
HOSTILE = "<script>alert(1)</script>\u202e\u200b"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;"


def path_of(plan: Plan, more: str = "") -> str:
    """Return the URL of a plan, or of a path below it."""
    return f"/plans/{plan.public_id}/{more}"


@pytest.fixture
def unknown(stage: Stage, ada: User) -> Plan:
    """A plan whose step's call lost its answer."""
    stage.acts["cautious"] = act_raising(EffectUnknown("Lost."))
    return work_off(make_plan(ada, act(1, "x", "cautious")))


def test_empty_list_links_to_editor(ada):
    pages = Pages(ada)
    pages.open("/plans/")
    assert plans_on(pages) == [] and 'href="/plans/new/"' in pages.html


def test_links_to_new_plans_need_role(ada, rosa, vera, admin):
    for viewer, may in ((ada, True), (admin, True), (rosa, False), (vera, False)):
        pages = Pages(viewer)
        pages.open("/plans/")
        assert [f'href="{path}"' in pages.html for path in ("/ask/", "/plans/new/")] == [may, may], viewer


def plans_on(pages: Pages) -> list[str]:
    """Return the plans that the open page links to."""
    return re.findall(r'href="/plans/(plan_[^/"]+)/"', pages.html)


def test_list_shows_status_and_progress(ada, vera):
    work_off(make_plan(ada, step(1), goal="The first"))
    work_off(make_plan(ada, step(1), write_step(2, dependencies=[1]), goal="The second"))
    make_plan(ada, step(1), start=False, goal="The third")
    text = Pages(vera).open("/plans/").partition("Results")[2]
    assert text.index("The third") < text.index("The second") < text.index("The first")
    for said in ("Not started", "Waiting for approval", "1 of 2", "Done", "Ada"):
        assert said in text


LISTED: dict[str, list[str]] = {
    "status=waiting": ["held"],
    "status=in_progress": ["held"],
    "status=completed": ["done"],
    "status=cancelled": [],
    "q=HEL": ["held"],
    "q=ada": ["done", "held"],
    "status=nonsense": ["done", "held"],
    "cursor=%D9%A1": ["done", "held"],
    "cursor=W2ZhbHNlLCAieCIsIDFd": ["done", "held"],
    "q=%00%27": [],
}


def test_url_holds_filters(ada: User) -> None:
    work_off(make_plan(ada, step(1), goal="done"))
    work_off(make_plan(ada, write_step(1), goal="held"))
    pages, shown = Pages(ada), {}
    for query in LISTED:
        pages.open(f"/plans/?{query}")
        shown[query] = [goal for goal in ("done", "held") if f">{goal}</a>" in pages.html]
    assert shown == LISTED


def test_older_plans_have_pages(ada, monkeypatch):
    monkeypatch.setattr("catalog.ui.lists.PAGE_SIZE", 2)
    for number in range(5):
        make_plan(ada, step(1), start=False, goal=f"goal {number}")
    pages, seen, path = Pages(ada), [], "/plans/"
    while path:
        pages.open(path)
        seen += re.findall(r">(goal \d)</a>", pages.html)
        path = html.unescape("".join(re.findall(r'href="([^"]+)" rel="next"', pages.html)))
    assert seen == ["goal 4", "goal 3", "goal 2", "goal 1", "goal 0"]


def test_invisible_plans_are_not_found(ada):
    plan, stranger = make_plan(ada, step(1)), person("stranger")
    pages = Pages(stranger)
    pages.open("/plans/")
    assert plans_on(pages) == []
    Pages(stranger).open(path_of(plan), status=404)
    Pages(stranger).open(path_of(plan, "values/x/"), status=404)
    Pages(ada).open("/plans/plan_none/", status=404)


def test_waiting_step_is_open(ada, rosa):
    plan = work_off(make_plan(ada, step(1, expected_key="note"), write_step(2, dependencies=[1])))
    pages = Pages(rosa)
    text = pages.open(path_of(plan))
    assert "2. Step 2" in text
    assert f"/approvals/?item={request_of(plan, 2).public_id}" in pages.html
    assert 'id="s2" data-item data-step="2"' in pages.html
    assert 'aria-current="true"' in pages.html.partition('id="s2"')[2][:400]
    assert f'data-live="/ws/pages/plans/{plan.public_id}/" data-seq="{plan.last_seq}"' in pages.html


def test_step_in_query_is_open(ada: User) -> None:
    plan, pages = work_off(make_plan(ada, step(1), step(2))), Pages(ada)
    for query in ("step=1", "step=99", "step=x", "step=-1", "step=9999999999999", "tab=output", "tab=x"):
        assert "1. Step 1" in pages.open(path_of(plan, f"?{query}")), query


def test_failed_plan_shows_reason_and_blocked_steps(ada):
    plan = work_off(make_plan(ada, step(1, "read_file", parameters={"path": "no.txt"}), step(2, dependencies=[1])))
    pages = Pages(ada)
    assert step_of(plan).error in pages.open(path_of(plan))
    assert "Blocked by step 1" in words(pages.html.split('id="s2"')[1])


def test_texts_of_agents_are_escaped(ada):
    parameters = {"template": HOSTILE, "values": {}}
    document = {**step(1, parameters=parameters, expected_key="kept"), "description": HOSTILE}
    plan = work_off(make_plan(ada, document, goal=HOSTILE))
    pages = Pages(ada)
    for path in ("/plans/", path_of(plan), path_of(plan, "?tab=input"), path_of(plan, "?tab=output")):
        pages.open(path)
        assert "<script>alert" not in pages.html
        assert "\u202e" not in pages.html
        assert SHOWN in pages.html
        assert "U+202E" in pages.html


def test_large_value_is_truncated(ada):
    plan = work_off(make_plan(ada, step(1)))
    MemoryItem.objects.create(plan=plan, key="large", value=json.dumps("x" * 9000), at=plan.created_at)
    pages = Pages(ada)
    assert "9 KB" in pages.open(path_of(plan))
    assert "x" * 2000 in pages.html
    assert "x" * 2100 not in pages.html
    assert json.loads(pages.client.get(path_of(plan, "values/large/file/")).getvalue()) == "x" * 9000
    assert pages.client.get(path_of(plan, "values/none/")).status_code == 404


def test_large_result_begins_after_its_arguments(ada):
    plan = make_plan(ada, step(1), start=False)
    response = format_success_response(None, {"text": "asked"}, ["y" * 25_000], tool_name="render_text")
    MemoryItem.objects.create(plan=plan, key="large", value=json.dumps(response), at=plan.created_at)
    shown = Pages(ada).open(path_of(plan))
    assert "y" * 2_000 in shown
    assert "y" * 2_049 not in shown
    assert "asked" not in shown


def test_whole_values_are_available_as_json(ada):
    plan, pages = work_off(make_plan(ada, step(1), step(2, None))), Pages(ada)
    assert json.loads(pages.client.get(path_of(plan, "steps/1/arguments/file/")).getvalue())["template"] == "hello"
    assert json.loads(pages.client.get(path_of(plan, "steps/1/result/file/")).getvalue())["results"] == ["hello"]
    for missing in ("steps/1/evidence/", "steps/2/result/", "steps/3/result/", "steps/1/status/"):
        assert pages.client.get(path_of(plan, missing)).status_code == 404
        assert pages.client.get(path_of(plan, f"{missing}file/")).status_code == 404


def test_arguments_name_their_sources(ada):
    first = step(1, expected_key="note")
    plan = work_off(make_plan(ada, first, step(2, parameters={"template": "${note}", "values": {}}, dependencies=[1])))
    pages = Pages(ada)
    pages.open(path_of(plan, "?step=2&tab=input"))
    assert f"{path_of(plan)}values/note/" in pages.html
    assert "?step=1&amp;tab=output" in pages.html.partition("data-became")[0].partition('id="sp-input"')[2]


def test_owner_starts_and_cancels_plan(ada):
    plan, pages = make_plan(ada, write_step(1), start=False), Pages(ada)
    pages.open(path_of(plan))
    assert 'id="start"' in pages.html
    pages.send(path_of(plan, "start/"))
    assert 'id="start"' not in pages.html and 'id="cancel"' in pages.html
    assert work_off(plan).status == "in_progress"
    pages.send(path_of(plan, "cancel/"), {"confirmed": "1"})
    plan.refresh_from_db()
    assert plan.status == "cancelled" and 'id="cancel"' not in pages.html


@pytest.mark.parametrize("action", ["start/", "cancel/"])
def test_late_action_is_conflict(ada: User, action: str) -> None:
    plan, pages = make_plan(ada, write_step(1), start=False), Pages(ada)
    pages.open(path_of(plan))
    cancel_plan(plan, by=Requester(ada))
    assert "Cancelled" in pages.send(path_of(plan, action), status=409)
    assert 'role="alert"' in pages.html


def test_controls_depend_on_permissions(ada, ben, admin):
    plan = work_off(make_plan(ada, write_step(1)))
    others = Pages(ben)
    others.open(path_of(plan))
    assert not [each for each in ("pause", "cancel", "change") if f'id="{each}"' in others.html]
    others.open("/plans/new/")
    others.send(path_of(plan, "cancel/"), status=403)
    administrator = Pages(admin)
    administrator.open(path_of(plan))
    administrator.send(path_of(plan, "cancel/"), {"confirmed": "1"})
    plan.refresh_from_db()
    assert plan.status == "cancelled"


def test_actions_need_post_token_and_sign_in(ada):
    plan, pages = make_plan(ada, step(1), start=False), Pages(ada)
    assert pages.client.post(path_of(plan, "start/")).status_code == 403
    assert pages.client.get(path_of(plan, "start/")).status_code == 405
    assert Pages().client.get(path_of(plan)).status_code == 302


@pytest.mark.parametrize(
    ("verdict", "then"), [("happened", "Done"), ("did_not_happen", "Failed"), ("request_again", "Running")]
)
def test_owner_settles_unknown_outcome(unknown: Plan, ada: User, verdict: str, then: str) -> None:
    pages = Pages(ada)
    pages.open(path_of(unknown))
    assert 'id="settle"' in pages.html
    text = pages.send(path_of(unknown, "steps/1/outcome/"), {"verdict": verdict, "comment": "I looked."})
    assert then in text
    assert AuditEntry.objects.filter(action="call.settled").exists()


@pytest.mark.parametrize("kind", [Plan.Kind.PLAN, Plan.Kind.CALL])
def test_unknown_outcome_is_in_queue(unknown: Plan, ada: User, vera: User, kind: str) -> None:
    Plan.objects.filter(pk=unknown.pk).update(kind=kind)
    address, pages = f'{path_of(unknown)}?step=1"', Pages(ada)
    assert address in Pages(vera).client.get("/approvals/").text
    assert address not in Pages(person("nobody")).client.get("/approvals/").text
    pages.open(path_of(unknown))
    pages.send(path_of(unknown, "steps/1/outcome/"), {"verdict": "happened", "comment": "I looked."})
    pages.open("/approvals/")
    assert address not in pages.html


def test_unknown_outcome_is_shown_after_plan_ended(unknown: Plan, ada: User) -> None:
    cancel_plan(unknown, by=Requester(ada))
    pages = Pages(ada)
    listed = pages.open("/plans/?status=waiting")
    assert "Cancelled" in listed and "Outcome unknown" in listed and unknown.public_id in pages.html
    pages.open(path_of(unknown))
    assert re.findall(r'name="verdict" value="(\w+)"', pages.html) == ["happened", "did_not_happen"]


@pytest.mark.parametrize(
    "fields",
    [
        {"verdict": "happened", "comment": "  "},
        {"verdict": "happened", "comment": "x" * 5000},
        {"verdict": "maybe", "comment": "I looked."},
        {},
    ],
)
def test_invalid_settlement_is_refused(unknown: Plan, ada: User, fields: dict[str, str]) -> None:
    pages = Pages(ada)
    pages.open(path_of(unknown))
    pages.send(path_of(unknown, "steps/1/outcome/"), fields, status=422)
    assert 'role="alert"' in pages.html and f"{fields.get('comment', '').strip()[:4000]}" in pages.html
    assert call_of(unknown).status == "outcome_unknown"


def test_outcome_is_settled_once_by_authorized_users(unknown, ada, ben):
    answer, other = {"verdict": "happened", "comment": "I looked."}, Pages(ben)
    other.open(path_of(unknown))
    assert 'name="verdict"' not in other.html
    other.open("/plans/new/")
    other.send(path_of(unknown, "steps/1/outcome/"), answer, status=403)
    pages = Pages(ada)
    pages.open(path_of(unknown))
    pages.send(path_of(unknown, "steps/7/outcome/"), answer, status=404)
    pages.open(path_of(unknown))
    pages.send(path_of(unknown, "steps/1/outcome/"), answer)
    pages.open("/plans/new/")
    pages.send(path_of(unknown, "steps/1/outcome/"), answer, status=409)


def test_late_result_is_shown_as_evidence(unknown, ada):
    Call.objects.filter(pk=call_of(unknown).pk).update(late_evidence='{"written": true}')
    assert '"written": true' in Pages(ada).open(path_of(unknown, "?tab=output"))


def test_htmx_gets_requested_part(ada):
    plan, pages = work_off(make_plan(ada, step(1), write_step(2))), Pages(ada)
    part = {
        "HX-Request": "true",
        "HX-Target": "step",
        "HX-Current-URL": f"http://localhost{path_of(plan)}?step=2&tab=input",
    }
    response = pages.client.get(path_of(plan, "?step=1"), headers=part)
    assert compact(response.content.decode()).lstrip().startswith('<section class="card" id="step" data-step="1"')
    assert response["HX-Replace-Url"] == path_of(plan, "?step=1&tab=input")
    again = pages.client.get(path_of(plan), headers=part)
    assert 'data-step="2"' in again.content.decode()
    assert "HX-Replace-Url" not in again
    controls = pages.client.get(path_of(plan), headers={**part, "HX-Target": "controls"}).content.decode()
    assert compact(controls).lstrip().startswith('<div class="end" id="controls">')
    rows = pages.client.get("/plans/?q=Try", headers={**part, "HX-Target": "results"})
    assert rows["HX-Push-Url"] == "/plans/?q=Try"


def test_plan_continues_after_approval(ada, rosa):
    plan = work_off(make_plan(ada, write_step(1, expected_key="saved")))
    approve(plan, rosa)
    text = Pages(ada).open(path_of(work_off(plan), "?of=1"))
    for said in ("Done", "1 of 1 finished", "saved", "Rosa approved step 1"):
        assert said in text
