"""End-to-end test of contract C's conference: "please resend my badge", a question, a lookup, a held mail, a reply.

A server process executes the plan with a scripted model server. In one case the process is killed while the question
waits, and another one continues.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from plans.models import ModelUse, Plan
from tests.builders import approve, assert_gapless, call_of, events_of, request_of
from tests.chaos.serving import Serving
from tests.conftest import MakeServing
from tests.invariants import assert_invariants
from tests.plans.model_server import MODEL, ModelServer, model_server
from tests.rest import Rest
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
REQUEST = "Please resend my badge."
IDENTIFIER = "one@example.org"
QUESTION = "I'd be happy to help! Could you provide your registration email or registration ID?"
ASKS = {"intent": "registration_data_request", "needs_user_input": True, "input_request": QUESTION}
LOOKUP = {
    "step_id": 1,
    "description": "Find the registration",
    "tool": "lookup_registration",
    "parameters": {"identifier": "${answer}"},
    "expected_key": "registration",
    "output_path": ["results", "0"],
}
MAIL = {
    "step_id": 2,
    "description": "Send the badge again",
    "tool": "send_registration_email",
    "parameters": {"registration_id": "${registration.registration_id}", "document": "badge"},
    "dependencies": [1],
}
SENDS = {"intent": "resend_badge", "plan": {"goal": "Send a badge again", "steps": [LOOKUP, MAIL]}}
REPLY = "Your badge is on its way to the email you registered with."


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """The model with scripted responses."""
    with model_server() as scripted:
        scripted.says(json.dumps(ASKS), json.dumps(SENDS), REPLY)
        yield scripted


@pytest.fixture
def process(
    transactional_db: None, configured: None, make_serving: MakeServing, model: ModelServer
) -> Iterator[Serving]:
    """A server process that executes, uses that model and writes mails to a folder."""
    serving = make_serving(
        {"OPENAI_BASE_URL": model.url},
        TOOLGATE_TOOLS="",
        TOOLGATE_MODEL=f"openai:{MODEL}",
        OPENAI_API_KEY="sk-not-a-key",
        TOOLGATE_EMAIL_URL="file:{folder}/mails",
        TOOLGATE_UNDO_SECONDS="0",
        TOOLGATE_LEASE_SECONDS="30",
    )
    serving.start()
    eventually(serving.url, what="the server")
    yield serving
    serving.kill()


def asked(by: Rest) -> Plan:
    """Request a draft, start it, and return the plan once it waits for an answer."""
    answer = by.post("plans/draft/", {"request": REQUEST, "wait_seconds": 0})
    assert answer.status_code == 201, answer.content
    draft = answer.json()["id"]
    eventually(lambda: by.get(f"plans/draft/{draft}/").json()["status"] == "completed", what="the draft")
    plan = Plan.objects.get(public_id=by.post(f"plans/draft/{draft}/start/", {}).json()["id"])
    eventually(lambda: waits_for(plan, "input"), what="the question")
    return plan


def waits_for(plan: Plan, what: str) -> bool:
    return plan.steps.filter(status="in_progress", waiting_for=what).exists()


def mails_in(process: Serving) -> str:
    """Return all mails that were sent."""
    return "\n".join(file.read_text() for file in (process.effects / "mails").glob("*"))


@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "killed and started again"])
def test_resend_badge_conversation(process: Serving, model: ModelServer, ada: User, rosa: User, killed: bool) -> None:
    client = Rest(ada)
    plan = asked(client)
    if killed:
        process.kill()
    answer = client.post(f"plans/{plan.public_id}/input/", {"text": IDENTIFIER})
    assert answer.status_code == 200
    if killed:
        process.start()
    eventually(lambda: waits_for(plan, "approval"), what="the mail that is held")
    assert call_of(plan, 3).response_json["results"][0]["registration_id"] == "R-20400"
    assert request_of(plan, 4).call.arguments_json == {"registration_id": "R-20400", "document": "badge", "note": ""}
    assert mails_in(process) == ""
    approve(plan, rosa, 4)
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the end")
    assert_whole(plan, client.get(f"plans/{plan.public_id}/").json(), process, model)


def assert_whole(plan: Plan, shown: dict[str, Any], process: Serving, model: ModelServer) -> None:
    """Check the plan, its history, the mail, and the input of the model."""
    assert (shown["request"], shown["reply"]) == (REQUEST, REPLY)
    tools = ["ask_user", "plan_on", "lookup_registration", "send_registration_email", "compose_reply"]
    assert [step["tool"] for step in shown["steps"]] == tools
    assert mails_in(process).count("Subject: Your badge for registration R-20400") == 1
    assert [events_of(plan).count(f"1 input.{word}") for word in ("requested", "received")] == [1, 1]
    history = "".join(plan.events.values_list("data", flat=True))
    assert IDENTIFIER not in history + process.log()
    assert QUESTION not in history
    uses = ModelUse.objects.filter(plan=plan).order_by("pk").values_list("purpose", "call__tool_name")
    assert list(uses) == [("draft", "draft_plan"), ("continue", "plan_on"), ("reply", "compose_reply")]
    assert IDENTIFIER in model.read(1)
    assert "Sample Attendee" not in model.read(2)  # only the message of a private result is sent
    assert "It is on its way" in model.read(2)
    assert_gapless(plan)
    assert_invariants()
