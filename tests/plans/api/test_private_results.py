"""What a tool returns of somebody's own: masked on every path of the API but for those who may see it."""

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
def test_onlookers_see_masks(plan, role):
    """Nowhere in what the API says of the plan does the value stand."""
    texts = texts_of(Rest(person("other", role)), plan)
    assert not [text for text in texts if PRIVATE_EMAIL in text]
    assert sum(PRIVATE_MARKER in text for text in texts) == 4


def test_the_agent_of_another_who_sees_all_sees_masks_of_nothing(plan, rosa):
    """An agent's token never sees through: what is not its own is not even there."""
    assert agent(rosa).get(f"calls/{call_of(plan).public_id}/").status_code == 404


@pytest.mark.parametrize("role", ["reviewer", "administrator"])
def test_reviewers_and_administrators_see_it(plan, role):
    """As it is, on every path that holds it."""
    texts = texts_of(Rest(person("other", role)), plan)
    assert [PRIVATE_EMAIL in text for text in texts] == [True, True, False, True, True, False]
    assert not any(PRIVATE_MARKER in text for text in texts)


def test_the_owner_sees_it(plan, ada):
    """Whoever asked for the plan asked for its calls."""
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


def test_an_agent_sees_what_it_asked_for(executor, stage, ada):
    """With a token that came with the call; the token's person sees it too."""
    rest = agent(ada)
    call = asked(rest)
    assert call["result"]["results"] == [PRIVATE_RESULT]
    assert Rest(ada).get(f"calls/{call['id']}/").json()["result"] == call["result"]


def test_a_call_that_never_ran_keeps_its_reason_to_itself(plan, vera):
    """Derived or stored, the response is masked alike."""
    call = call_of(plan)
    Call.objects.filter(pk=call.pk).update(response="", status="cancelled", message=f"Not to {PRIVATE_EMAIL}.")
    shown = Rest(vera).get(f"calls/{call.public_id}/").json()["result"]
    assert (shown["success"], shown["error"], shown["results"]) == (False, {PRIVATE_MARKER: "string"}, [])


def test_the_shape_is_kept(plan, vera):
    """A client that reads the standard response finds every field where it was."""
    shown = Rest(vera).get(f"calls/{call_of(plan).public_id}/").json()
    masked = {"email": {PRIVATE_MARKER: "string"}, "seats": [{PRIVATE_MARKER: "number"}]}
    assert shown["arguments"] == {"value": masked}
    assert (shown["result"]["results"], shown["result"]["success"]) == ([masked], True)


def test_what_came_by_reference_is_private_too(plan, vera):
    """Also its result; a step that took nothing of it stays as it is."""
    rest = Rest(vera)
    told, plain = (rest.get(f"calls/{call_of(plan, number).public_id}/").json() for number in (2, 3))
    assert told["arguments"] == {"value": {"to": {PRIVATE_MARKER: "string"}}}
    assert told["result"]["results"] == [{"to": {PRIVATE_MARKER: "string"}}]
    assert plain["result"]["results"] == ["plain"]
    memory = rest.get(f"plans/{plan.public_id}/memory/").json()["values"]
    assert memory["found"] == {"email": {PRIVATE_MARKER: "string"}, "seats": [{PRIVATE_MARKER: "number"}]}
    assert memory["plain"]["results"] == ["plain"]


def test_the_words_of_a_failure_are_hidden(stage, ada, vera):
    """On the step, in memory and in the call: they may quote what was asked for."""

    def fail(value, context):
        raise ToolError(f"Nobody is called {PRIVATE_EMAIL}")

    stage.acts["private"] = fail
    failed = work_off(make_plan(ada, act(1, "x", "private")))
    shown, memory = (Rest(vera).get(f"plans/{failed.public_id}/{part}").json() for part in ("", "memory/"))
    assert (shown["steps"][0]["error"], memory["items"][0]["error"]) == (PRIVATE_NOTICE, PRIVATE_NOTICE)
    assert PRIVATE_EMAIL not in Rest(vera).get(f"calls/{call_of(failed).public_id}/").content.decode()


def test_masks_stay_when_the_tool_s_code_is_gone(plan, vera):
    """Its row says what it returns."""
    Tool.objects.filter(name="private").update(registered=False)
    assert PRIVATE_EMAIL not in "".join(texts_of(Rest(vera), plan))


def test_one_value_is_revealed_and_the_audit_log_says_to_whom(plan, rosa):
    """Who, which call and which field; never the value."""
    call = call_of(plan)
    response = Rest(rosa).post(f"calls/{call.public_id}/reveal/", {"path": PRIVATE_PATH})
    assert (response.status_code, response.json()) == (200, {"path": PRIVATE_PATH, "value": PRIVATE_EMAIL})
    entry = AuditEntry.objects.get(action="call.revealed")
    assert (entry.actor, entry.object_ref, entry.tool_name) == (rosa, call.public_id, "private")
    assert entry.details_json == {"path": PRIVATE_PATH}
    assert PRIVATE_EMAIL not in "".join(map(str, AuditEntry.objects.values_list()))
    assert verify().first_bad is None


@pytest.mark.parametrize(("name", "status"), [("ada", 200), ("admin", 200), ("vera", 403), ("ben", 403)])
def test_who_may_reveal(plan, request, name, status):
    """Those who see it anyway; the others are told who, and nothing is kept of their asking."""
    rest = Rest(request.getfixturevalue(name))
    response = rest.post(f"calls/{call_of(plan).public_id}/reveal/", {"path": PRIVATE_PATH})
    assert response.status_code == status
    assert AuditEntry.objects.filter(action="call.revealed").count() == (status == 200)


def test_an_agent_reveals_its_own_alone(executor, stage, ada, admin):
    """What is another's is not there."""
    rest = agent(ada)
    path = f"calls/{asked(rest)['id']}/reveal/"
    assert rest.post(path, {"path": PRIVATE_PATH}).json()["value"] == PRIVATE_EMAIL
    assert agent(admin).post(path, {"path": PRIVATE_PATH}).status_code == 404


@pytest.mark.parametrize("body", [{"path": "results.0.emial"}, {"path": "results.0"}, {"path": ""}, {"path": 1}, {}])
def test_a_path_that_names_no_value_is_422(plan, ada, body):
    """And is not kept."""
    response = Rest(ada).post(f"calls/{call_of(plan).public_id}/reveal/", body)
    assert (response.status_code, wrong_paths(response)) == (422, ["path"])
    assert not AuditEntry.objects.filter(action="call.revealed").exists()


def test_nothing_is_revealed_before_there_is_a_response(stage, ada):
    """The call has been stored and nobody has run it yet."""
    call = create_call(CallOrder("private", {"value": PRIVATE_RESULT}), by=Requester(ada))
    response = Rest(ada).post(f"calls/{call.public_id}/reveal/", {"path": PRIVATE_PATH})
    assert response.status_code == 409


def test_an_agent_reads_its_own_plan_as_it_is(stage, ada):
    """It submitted the plan, so it asked for what is in it."""
    rest = agent(ada, "plans:read", "plans:write", "calls:create")
    stored = rest.post(
        "plans/", {"goal": "Look", "steps": [act(1, PRIVATE_RESULT, "private", expected_key="found")]}
    ).json()
    plan = work_off(Plan.objects.get(public_id=stored["id"]))
    assert rest.get(f"plans/{stored['id']}/memory/").json()["values"]["found"]["results"] == [PRIVATE_RESULT]
    assert PRIVATE_EMAIL in rest.get(f"calls/{call_of(plan).public_id}/").content.decode()


def test_a_registration_is_private(catalog, ada, vera, rosa):
    """The tool that ships says so: one looks it up, another sees that it was found."""
    look = step(1, "lookup_registration", parameters={"identifier": "R-20400"})
    call = call_of(work_off(make_plan(ada, look)))
    own, other = (Rest(viewer).get(f"calls/{call.public_id}/").json() for viewer in (ada, vera))
    assert own["result"]["success"] is other["result"]["success"] is True
    assert other["arguments"] == {"identifier": {PRIVATE_MARKER: "string"}}
    path, value = next((field.path, field_at(own["result"], field.path)) for field in masked_fields(own["result"]))
    assert Rest(rosa).post(f"calls/{call.public_id}/reveal/", {"path": path}).json()["value"] == value


def test_registrations_are_not_looked_up_twice_within_five_seconds(catalog, ada):
    """By one caller; the second time it is told when to come back."""
    rest, body = agent(ada), {"tool": "lookup_registration", "arguments": {"identifier": "R-20400"}, "wait_seconds": 0}
    assert rest.post("calls/", body).status_code == 201
    refused = rest.post("calls/", body)
    assert (refused.status_code, 1 <= int(refused["Retry-After"]) <= 5) == (429, True)
    assert "1/5s" in refused.json()["detail"]
