"""REST endpoints of calls."""

import pytest

from approvals.models import ApprovalRequest, Policy, PolicyRevision
from approvals.policies import gate
from approvals.requests.lifecycle import withdraw
from catalog.inventory.snapshot import drop_snapshot
from catalog.models import Call, Tool
from plans.live.long_polling import WAIT_HEADER
from plans.models import Plan
from tests.builders import make_plan, step, work_off
from tests.conftest import person
from tests.rest import Rest, agent, wrong_paths

FIELDS = {
    *(
        "id",
        "message",
        "envelope",
        "mismatch",
        "plan",
        "step_id",
        "tool",
        "version",
        "query_type",
        "arguments",
        "defaults",
        "omitted",
        "status",
        "waiting_for",
        "result",
        "content",
        "warnings",
    ),
    *("approval", "grant", "replaces", "replaced_by", "attempt", "implementation", "reason", "requested_by"),
    *("created_at", "started_at", "finished_at", "duration_ms"),
}
SAY = {"tool": "render_text", "arguments": {"template": "hello", "values": {}}}
WRITE = {"tool": "write_file", "arguments": {"path": "a.txt", "content": "x"}, "reason": "To try it"}


def ended(rest, call_id):
    """Do what is to be done for the call, and return it as it is then."""
    work_off(Plan.objects.get(public_id=rest.get(f"calls/{call_id}/").json()["plan"]))
    return rest.get(f"calls/{call_id}/").json()


def test_a_safe_call_runs_without_approval(catalog, ada):
    rest = agent(ada)
    response = rest.post("calls/", SAY | {"wait_seconds": 0})
    made = response.json()

    assert (response.status_code, set(made)) == (201, FIELDS)
    call = ended(rest, made["id"])
    assert (call["status"], call["step_id"], call["requested_by"]) == ("completed", 1, "ada")
    assert call["result"]["success"] is True
    assert (call["message"], call["result"]["results"]) == ("OK", ["hello"])
    assert call["duration_ms"] >= 0
    assert rest.get(f"plans/{call['plan']}/").json()["kind"] == "call"


def test_a_dangerous_call_waits_and_runs_when_approved(catalog, ada, rosa, workspace):
    rest = agent(ada)
    made = rest.post("calls/", WRITE).json()
    assert (made["status"], made["waiting_for"], made["result"]) == ("waiting", "approval", None)
    assert made["approval"]["url"].endswith(f"/approvals/?item={made['approval']['id']}")

    reviewer = Rest(rosa)
    path = f"approvals/{made['approval']['id']}/"
    digest = reviewer.get(path).json()["digest"]
    assert reviewer.post(f"{path}reviews/", {"verdict": "approve", "seen_digest": digest}).status_code == 201

    assert ended(rest, made["id"])["status"] == "completed"
    assert (workspace / "a.txt").read_text() == "x"


def test_a_rejected_call_fails_with_the_reason(catalog, ada, rosa, workspace):
    rest, reviewer = agent(ada), Rest(rosa)
    made = rest.post("calls/", WRITE).json()
    path = f"approvals/{made['approval']['id']}/"
    body = {"verdict": "reject", "seen_digest": reviewer.get(path).json()["digest"], "comment": "Not on a Friday."}
    reviewer.post(f"{path}reviews/", body)

    call = ended(rest, made["id"])
    assert call["status"] == "failed"
    assert "Not on a Friday." in call["result"]["error"]
    assert not (workspace / "a.txt").exists()


def test_a_call_that_did_not_run_has_the_reason(catalog, ada, workspace):
    rest = agent(ada)
    made = rest.post("calls/", WRITE).json()
    withdraw(ApprovalRequest.objects.get(), by=ada, reason="Wrong file.")

    call = rest.get(f"calls/{made['id']}/").json()
    assert call["status"] == "cancelled"
    assert call["result"] == {
        "query_type": None,
        "parameters": WRITE["arguments"],
        "results": [],
        "output_key": "write_file",
        "success": False,
        "error": Call.objects.get().message,
    }


BAD_CALLS = [
    ({"tool": "no_such_tool", "arguments": {}}, "tool"),
    ({"tool": "t" * 65, "arguments": {}}, "tool"),
    ({"arguments": {}}, "tool"),
    ({**SAY, "arguments": {"template": 1, "values": {}}}, "template"),
    ({**SAY, "arguments": {"template": "x", "values": {}, "colour": 1}}, "colour"),
    ({**SAY, "arguments": []}, "arguments"),
    ({**SAY, "colour": 1}, "colour"),
    ({**SAY, "reason": 1}, "reason"),
    ({**SAY, "wait_seconds": 61}, "wait_seconds"),
    ({**SAY, "wait_seconds": "5"}, "wait_seconds"),
    ({"tool": "sec_financial_data", "query_type": "horoscope", "arguments": {}}, "query_type"),
]


def test_invalid_arguments_are_422_and_not_stored(catalog, ada):
    rest = agent(ada)
    answers = [(path, rest.post("calls/", body)) for body, path in BAD_CALLS]
    assert [(path, answer.content) for path, answer in answers if path not in wrong_paths(answer)] == []
    assert {answer.status_code for _, answer in answers} == {422}
    assert not Call.objects.exists()


def test_a_call_refused_by_a_policy_is_403_with_its_name(catalog, ada):
    policy = Policy.objects.get(revision__safety_level="dangerous")
    PolicyRevision.objects.filter(policy=policy).update(effect="deny", message="Not today.")
    gate.invalidate_rules()
    response = agent(ada).post("calls/", WRITE)
    problem = response.json()
    assert (response.status_code, problem["type"], problem["detail"]) == (403, "urn:toolgate:refused", "Not today.")
    assert (problem["policy"]["name"], Call.objects.exists()) == (policy.name, False)


def test_arguments_over_256_kib_are_422(catalog, ada):
    response = agent(ada).post("calls/", {**WRITE, "arguments": {"path": "a", "content": "x" * 262_145}})

    assert (response.status_code, response.json()["errors"][0]["code"]) == (422, "too_large")


def test_a_call_of_a_disabled_tool_is_409(catalog, ada):
    Tool.objects.filter(name="render_text").update(enabled=False)
    drop_snapshot()

    assert agent(ada).post("calls/", SAY).status_code == 409


def test_references_in_a_direct_call_are_plain_text(catalog, ada):
    rest, arguments = agent(ada), {"template": "hello", "values": {"name": "${nothing}"}}
    made = rest.post("calls/", {"tool": "render_text", "arguments": arguments, "wait_seconds": 0}).json()

    call = ended(rest, made["id"])
    assert (call["status"], call["arguments"]) == ("completed", arguments)


def test_a_call_may_join_a_plan_of_ones_own(catalog, ada, ben):
    plan = make_plan(ada, step(1), step(2, dependencies=[1])).public_id
    made = Rest(ada).post("calls/", {**SAY, "plan": plan}).json()

    assert (made["plan"], made["step_id"]) == (plan, 3)
    assert agent(ben).post("calls/", {**SAY, "plan": plan}).status_code == 404
    assert Rest(ada).post("calls/", {**SAY, "plan": "plan_x"}).status_code == 404


def test_the_owner_of_a_plan_reads_calls_added_by_others(catalog, admin):
    otto = person("otto", "operator")
    own = agent(otto, "plans:read", "plans:write", "calls:create")
    plan = own.post("plans/", {"goal": "g", "steps": [step(1), step(2, dependencies=[1])]}).json()["id"]
    call = Rest(admin).post("calls/", {**SAY, "plan": plan}).json()["id"]

    assert own.get(f"calls/{call}/").status_code == 200
    assert agent(otto).get(f"calls/{call}/").status_code == 404
    otto.groups.clear()
    assert Rest(otto).get(f"calls/{call}/").status_code == 200
    assert Rest(person("nina")).get(f"calls/{call}/").status_code == 404


def test_someone_elses_call_is_404(catalog, ada, ben, vera):
    call = agent(ada).post("calls/", SAY).json()["id"]

    assert Rest(vera).get(f"calls/{call}/").status_code == 200
    assert agent(ben).get(f"calls/{call}/").status_code == 404
    assert agent(ada).get(f"calls/{call}/").status_code == 404
    assert agent(ada).get("calls/call_x/").status_code == 404


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (SAY, "10.0"),
        ({**SAY, "wait_seconds": 2}, "2.0"),
        ({**SAY, "wait_seconds": 0}, None),
        (WRITE, None),
        ({**WRITE, "wait_seconds": 5}, "5.0"),
    ],
)
def test_the_view_sets_the_wait_header_and_does_not_wait(catalog, workspace, ada, body, seconds):
    response = agent(ada).post("calls/", body)
    named = response.headers.get(WAIT_HEADER)

    assert named == (f"{response.json()['id']};{seconds}" if seconds else None)


def test_reading_a_call_may_set_the_wait_header(catalog, ada):
    rest = agent(ada)
    call = rest.post("calls/", SAY).json()["id"]

    assert WAIT_HEADER not in rest.get(f"calls/{call}/")
    assert rest.get(f"calls/{call}/", wait_seconds=1.5)[WAIT_HEADER] == f"{call};1.5"
    for wrong in ("-1", "61", "nan", "inf", "soon"):
        assert wrong_paths(rest.get(f"calls/{call}/", wait_seconds=wrong)) == ["wait_seconds"]


def test_a_preview_shows_the_effect_and_runs_nothing(catalog, ada, workspace):
    response = Rest(ada).post("tools/write_file/preview/", {"arguments": WRITE["arguments"]})
    body = response.json()

    assert (body["safety_level"], body["effect"], body["message"]) == ("dangerous", "hold", None)
    assert body["preview"]["after"] == "x"
    assert response["Cache-Control"] == "no-store"
    assert not Call.objects.exists()
    assert not (workspace / "a.txt").exists()


def test_a_preview_of_invalid_arguments_is_422(catalog, ada):
    assert wrong_paths(Rest(ada).post("tools/write_file/preview/", {"arguments": {"path": 3, "content": ""}})) == [
        "path"
    ]


def test_agents_may_not_preview_calls(catalog, ada):
    assert agent(ada).post("tools/write_file/preview/", {"arguments": WRITE["arguments"]}).status_code == 403
