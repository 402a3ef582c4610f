"""The client against the product's own views."""

from typing import Any

import pytest

from catalog.models import Call as StoredCall
from plans.models import Plan as StoredPlan
from tests.builders import work_off
from tests.toolgate_client.served import client_of
from toolgate_client import Client, Conflict, Forbidden, InvalidRequest, NotAllowed, NotFound, RunReport, gated

WRITE = {"path": "a.txt", "content": "x"}


@pytest.fixture
def reviewer(rosa) -> Client:
    """A reviewer's client."""
    return client_of(rosa, "approvals:read", "approvals:decide")


def test_a_call_is_held_edited_and_run(catalog, workspace, ada, reviewer):
    toolgate = client_of(ada, "calls:create", "plans:read")
    call = toolgate.call("write_file", WRITE, wait_seconds=0)
    assert (call.status, call.waiting_for, call.results) == ("waiting", "approval", None)
    [request] = reviewer.approvals(status="pending", tool="write_file")
    assert call.approval is not None
    assert (request.id, request.may_decide, request.arguments) == (call.approval.id, True, WRITE)
    assert reviewer.review(request, "approve", arguments={**WRITE, "content": "y"}).status == "approved"
    with pytest.raises(Conflict):
        reviewer.review(request, "reject")
    work_off(StoredPlan.objects.get())
    call = toolgate.wait(call, wait_seconds=0)
    assert (call.status, (workspace / "a.txt").read_text()) == ("completed", "y")
    plan = toolgate.plan(str(call.plan))
    assert (plan.status, plan.steps[0].call) == ("completed", call.id)
    events = list(toolgate.events(plan.id))
    assert (events[0].type, events[-1].type, events[-1].seq) == ("plan.created", "plan.completed", plan.last_seq)


def test_errors_are_those_of_the_api(catalog, ada):
    toolgate = client_of(ada, "calls:create")
    with pytest.raises(InvalidRequest) as raised:
        toolgate.call("render_text", {"template": 1, "values": {}})
    assert raised.value.document.errors[0]["path"] == "template"
    with pytest.raises(NotFound):
        toolgate.wait("call_x")
    with pytest.raises(Forbidden):
        toolgate.run("delete_file", {"path": "a"}, print)


@pytest.fixture
def deciding(monkeypatch, reviewer) -> list[Any]:
    """Verdicts with options, which the reviewer gives in order when the client pauses."""
    verdicts: list[Any] = []

    def decide(seconds: float) -> None:
        [request] = reviewer.approvals(status="pending")
        verdict, options = verdicts.pop(0)
        reviewer.review(request, verdict, **options)

    monkeypatch.setattr("toolgate_client.client.time.sleep", decide)
    return verdicts


def test_a_gated_function_runs_as_approved_and_ends_its_call(catalog, ada, deciding):
    @gated(client=client_of(ada, "permissions:ask"))
    def delete_file(path: str, force: bool = False) -> str:
        return f"{path} {force}" if path != "missing" else str(1 / 0)

    deciding += [("approve", {"arguments": {"path": "b", "force": True}}), ("reject", {"comment": "Not today."})]
    deciding += [("approve", {})]
    assert delete_file("a") == "b True"
    with pytest.raises(NotAllowed, match="Not today") as raised:
        delete_file("a")
    with pytest.raises(ZeroDivisionError):
        delete_file("missing")
    done, refused, failed = StoredCall.objects.order_by("pk")
    assert (done.status, done.response_json["results"]) == ("completed", ["b True"])
    assert (refused.status, raised.value.call, deciding) == ("failed", refused.public_id, [])
    assert (failed.status, failed.message) == ("failed", "ZeroDivisionError: division by zero")


def test_a_report_may_be_repeated_and_needs_a_permission(catalog, ada, deciding):
    toolgate = client_of(ada, "permissions:ask")
    held = toolgate.ask("delete_file", {"path": "a"}, call_id="c1")
    assert held.decision == "wait" and held.call is not None
    with pytest.raises(Conflict):
        toolgate.report(held.call, RunReport(succeeded=True))
    deciding.append(("approve", {}))
    assert toolgate.run("delete_file", {"path": "a"}, lambda arguments: 3, call_id="c1") == 3
    toolgate.report(held.call, RunReport(succeeded=True, output=3))
