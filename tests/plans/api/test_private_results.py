"""Private results over REST are masked for users who may not see them."""

from typing import Any

import pytest

from approvals.audit.verification import verify
from approvals.models import AuditEntry
from catalog.calls.privacy import PRIVATE_MARKER, PRIVATE_NOTICE, field_at, masked_fields
from catalog.errors import ToolError
from catalog.models import Call, Tool
from plans.actions.call import CallOrder, create_call
from plans.models import Plan
from plans.store.requesters import Requester
from tests.builders import act, call_of, make_plan, step, work_off
from tests.conftest import person
from tests.plans.factories import PRIVATE_EMAIL, PRIVATE_PATH, PRIVATE_RESULT, private_plan
from tests.rest import Rest, agent, wrong_paths
from tests.waiting import eventually


@pytest.fixture
def plan(stage, ada):
    """Such a plan of Ada's."""
    return private_plan(ada)


def texts_of(rest, plan):
    """Return the texts of every path that shows the plan, its memory, its history and its calls."""
    paths = [f"plans/{plan.public_id}/{part}" for part in ("", "memory/", "events/")]
    paths += [f"calls/{call_of(plan, number).public_id}/" for number in (1, 2, 3)]
    answers = [rest.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    return [answer.content.decode() for answer in answers]


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_other_users_see_masks(plan, role):
    texts = texts_of(Rest(person("other", role)), plan)
    assert not [text for text in texts if PRIVATE_EMAIL in text]
    assert sum(PRIVATE_MARKER in text for text in texts) == 4


def test_the_agent_of_another_who_sees_all_sees_masks_of_nothing(plan, rosa):
    assert agent(rosa).get(f"calls/{call_of(plan).public_id}/").status_code == 404


@pytest.mark.parametrize("role", ["reviewer", "administrator"])
def test_reviewers_and_administrators_see_private_values(plan, role):
    texts = texts_of(Rest(person("other", role)), plan)
    assert [PRIVATE_EMAIL in text for text in texts] == [True, True, False, True, True, False]
    assert not any(PRIVATE_MARKER in text for text in texts)


def test_the_owner_sees_private_values(plan, ada):
    assert PRIVATE_EMAIL in texts_of(Rest(ada), plan)[3]


def asked(rest: Rest) -> dict[str, Any]:
    """Ask for a call that answers with what is somebody's own; return it once it has ended."""
    path = f"calls/{rest.post('calls/', {'tool': 'private', 'arguments': {'value': PRIVATE_RESULT}}).json()['id']}/"

    def ended() -> dict[str, Any] | None:
        call: dict[str, Any] = rest.get(path).json()
        return call if call["finished_at"] else None

    call = eventually(ended, what="the call's end")
    assert call is not None
    return call


def test_an_agent_sees_the_private_results_of_its_calls(executor, stage, ada):
    rest = agent(ada)
    call = asked(rest)
    assert call["result"]["results"] == [PRIVATE_RESULT]
    assert Rest(ada).get(f"calls/{call['id']}/").json()["result"] == call["result"]


def test_the_reason_of_a_call_that_did_not_run_is_masked(plan, vera):
    call = call_of(plan)
    Call.objects.filter(pk=call.pk).update(response="", status="cancelled", message=f"Not to {PRIVATE_EMAIL}.")
    body = Rest(vera).get(f"calls/{call.public_id}/").json()["result"]
    assert (body["success"], body["error"], body["results"]) == (False, {PRIVATE_MARKER: "string"}, [])


def test_masks_keep_the_shape_of_the_response(plan, vera):
    body = Rest(vera).get(f"calls/{call_of(plan).public_id}/").json()
    masked = {"email": {PRIVATE_MARKER: "string"}, "seats": [{PRIVATE_MARKER: "number"}]}
    assert body["arguments"] == {"value": masked}
    assert (body["result"]["results"], body["result"]["success"]) == ([masked], True)


def test_values_taken_by_reference_are_private(plan, vera):
    rest = Rest(vera)
    told, plain = (rest.get(f"calls/{call_of(plan, number).public_id}/").json() for number in (2, 3))
    assert told["arguments"] == {"value": {"to": {PRIVATE_MARKER: "string"}}}
    assert told["result"]["results"] == [{"to": {PRIVATE_MARKER: "string"}}]
    assert plain["result"]["results"] == ["plain"]
    memory = rest.get(f"plans/{plan.public_id}/memory/").json()["values"]
    assert memory["found"] == {"email": {PRIVATE_MARKER: "string"}, "seats": [{PRIVATE_MARKER: "number"}]}
    assert memory["plain"]["results"] == ["plain"]


def test_error_messages_are_masked(stage, ada, vera):
    def fail(value, context):
        raise ToolError(f"Nobody is called {PRIVATE_EMAIL}")

    stage.acts["private"] = fail
    failed = work_off(make_plan(ada, act(1, "x", "private")))
    shown, memory = (Rest(vera).get(f"plans/{failed.public_id}/{part}").json() for part in ("", "memory/"))
    assert (shown["steps"][0]["error"], memory["items"][0]["error"]) == (PRIVATE_NOTICE, PRIVATE_NOTICE)
    assert PRIVATE_EMAIL not in Rest(vera).get(f"calls/{call_of(failed).public_id}/").content.decode()


def test_masks_stay_when_the_tool_is_removed(plan, vera):
    Tool.objects.filter(name="private").update(registered=False)
    assert PRIVATE_EMAIL not in "".join(texts_of(Rest(vera), plan))


def test_a_revealed_value_is_audited(plan, rosa):
    call = call_of(plan)
    response = Rest(rosa).post(f"calls/{call.public_id}/reveal/", {"path": PRIVATE_PATH})
    assert (response.status_code, response.json()) == (200, {"path": PRIVATE_PATH, "value": PRIVATE_EMAIL})
    entry = AuditEntry.objects.get(action="call.revealed")
    assert (entry.actor, entry.object_ref, entry.tool_name) == (rosa, call.public_id, "private")
    assert entry.details_json == {"path": PRIVATE_PATH}
    assert PRIVATE_EMAIL not in "".join(map(str, AuditEntry.objects.values_list()))
    assert verify().first_bad is None


@pytest.mark.parametrize(("name", "status"), [("ada", 200), ("admin", 200), ("vera", 403), ("ben", 403)])
def test_only_users_who_may_see_a_value_can_reveal_it(plan, request, name, status):
    rest = Rest(request.getfixturevalue(name))
    response = rest.post(f"calls/{call_of(plan).public_id}/reveal/", {"path": PRIVATE_PATH})
    assert response.status_code == status
    assert AuditEntry.objects.filter(action="call.revealed").count() == (status == 200)


def test_an_agent_reveals_only_its_own_values(executor, stage, ada, admin):
    rest = agent(ada)
    path = f"calls/{asked(rest)['id']}/reveal/"
    assert rest.post(path, {"path": PRIVATE_PATH}).json()["value"] == PRIVATE_EMAIL
    assert agent(admin).post(path, {"path": PRIVATE_PATH}).status_code == 404


@pytest.mark.parametrize("body", [{"path": "results.0.emial"}, {"path": "results.0"}, {"path": ""}, {"path": 1}, {}])
def test_a_path_that_names_no_value_is_422(plan, ada, body):
    response = Rest(ada).post(f"calls/{call_of(plan).public_id}/reveal/", body)
    assert (response.status_code, wrong_paths(response)) == (422, ["path"])
    assert not AuditEntry.objects.filter(action="call.revealed").exists()


def test_reveal_before_the_response_is_refused(stage, ada):
    call = create_call(CallOrder("private", {"value": PRIVATE_RESULT}), by=Requester(ada))
    response = Rest(ada).post(f"calls/{call.public_id}/reveal/", {"path": PRIVATE_PATH})
    assert response.status_code == 409


def test_an_agent_reads_its_own_plan_unmasked(stage, ada):
    rest = agent(ada, "plans:read", "plans:write", "calls:create")
    stored = rest.post(
        "plans/", {"goal": "Look", "steps": [act(1, PRIVATE_RESULT, "private", expected_key="found")]}
    ).json()
    plan = work_off(Plan.objects.get(public_id=stored["id"]))
    assert rest.get(f"plans/{stored['id']}/memory/").json()["values"]["found"]["results"] == [PRIVATE_RESULT]
    assert PRIVATE_EMAIL in rest.get(f"calls/{call_of(plan).public_id}/").content.decode()


def test_a_registration_is_private(catalog, ada, vera, rosa):
    look = step(1, "lookup_registration", parameters={"identifier": "R-20400"})
    call = call_of(work_off(make_plan(ada, look)))
    own, other = (Rest(viewer).get(f"calls/{call.public_id}/").json() for viewer in (ada, vera))
    assert own["result"]["success"] is other["result"]["success"] is True
    assert other["arguments"] == {"identifier": {PRIVATE_MARKER: "string"}}
    path, value = next((field.path, field_at(own["result"], field.path)) for field in masked_fields(own["result"]))
    assert Rest(rosa).post(f"calls/{call.public_id}/reveal/", {"path": path}).json()["value"] == value


def test_registrations_are_rate_limited(catalog, ada):
    rest, body = agent(ada), {"tool": "lookup_registration", "arguments": {"identifier": "R-20400"}, "wait_seconds": 0}
    assert rest.post("calls/", body).status_code == 201
    refused = rest.post("calls/", body)
    assert (refused.status_code, 1 <= int(refused["Retry-After"]) <= 5) == (429, True)
    assert "1/5s" in refused.json()["detail"]
