"""Secrets in arguments: tools get them, nothing stored or shown contains them, and they are deleted with the call."""

import pytest
from cryptography.fernet import Fernet

from approvals.models import Round
from approvals.requests.deadlines import expire_if_due
from catalog.models import Call, CallSecret
from catalog.testing import clean_registry
from catalog.tools import registry, tool
from catalog.tools.registry import register_tool
from plans.actions import slices
from plans.actions.clone import clone_plan
from plans.actions.create import PlanProblems
from plans.actions.retry import retry_plan
from plans.engine.recovery import delete_expired_secrets
from plans.models import Step
from plans.store.requesters import Requester
from tests.approvals.factories import send_back
from tests.builders import act, approve, call_of, make_plan, reject, request_of, step, step_of, work_off
from tests.plans.factories import rows_with
from tests.plans.secret_tools import ACTS, PASSWORD, kept
from tests.rest import Rest

HIDDEN = {"$secret": "password"}
SIGN_IN = {"user": "ada", "password": PASSWORD}


def test_direct_call_runs_with_its_secret_without_storing_it(keepers, ada):
    """Neither in its arguments nor in the tool's result."""
    answer = Rest(ada).post("calls/", {"tool": "sign_in", "arguments": SIGN_IN})
    assert answer.status_code == 201
    work_off(step_of_call(answer.json()["id"]).plan)
    body = Rest(ada).get(f"calls/{answer.json()['id']}/").json()
    assert keepers == [PASSWORD]
    assert body["arguments"] == {"user": "ada", "password": HIDDEN, "note": None}
    assert body["result"]["parameters"] == {"user": "ada", "password": HIDDEN}
    assert body["result"]["results"] == [{"said": 'signed in with {"$secret":"password"}', "echo": HIDDEN}]
    assert rows_with(PASSWORD) == []
    assert kept() == 0


def step_of_call(public_id):
    """Return the step of a call."""
    return Step.objects.get(call__public_id=public_id)


def test_reviewers_see_the_name_and_the_tool_gets_the_value(keepers, ada, rosa):
    """Also in the preview, which is computed with the value."""
    plan = work_off(make_plan(ada, step(1, "wipe", parameters={"host": "db1", "password": PASSWORD})))
    request = request_of(plan)
    body = Rest(rosa).get(f"approvals/{request.public_id}/").json()
    assert body["arguments"] == {"host": "db1", "password": HIDDEN, "note": None}
    assert body["preview"]["after"] == '-p {"$secret":"password"}'
    assert body["preview"]["rows"] == [{"password": '{"$secret":"password"}'}]
    assert rows_with(PASSWORD) == []
    assert kept() == 1
    approve(plan, rosa)
    work_off(plan)
    assert keepers == [f"preview {PASSWORD}", f"preview {PASSWORD}", PASSWORD]
    assert call_of(plan).status == "completed"
    assert rows_with(PASSWORD) == []
    assert kept() == 0


def test_secret_exchanged_in_the_database_does_not_run(keepers, ada, rosa):
    """The HMAC in the approved text binds the value."""
    plan = work_off(make_plan(ada, step(1, "wipe", parameters={"host": "db1", "password": PASSWORD})))
    other = work_off(make_plan(ada, step(1, "wipe", parameters={"host": "db1", "password": "another one"})))
    mine, theirs = CallSecret.objects.get(plan_ref=plan.public_id), CallSecret.objects.get(plan_ref=other.public_id)
    CallSecret.objects.filter(pk=mine.pk).update(ciphertext=theirs.ciphertext)
    approve(plan, rosa)
    work_off(plan)
    assert (plan.status, call_of(plan).status) == ("failed", "cancelled")
    assert "password" in step_of(plan).error
    assert "another one" not in keepers


def test_equal_values_at_one_place_have_one_digest(keepers, ada):
    """So that a repeated call is recognised, and other values are other calls."""
    plans = [
        work_off(make_plan(ada, step(1, "wipe", parameters={"host": "h", "password": text})))
        for text in (PASSWORD, PASSWORD, "another one")
    ]
    first, same, other = (call_of(plan).arguments for plan in plans)
    assert first == same
    assert first != other


def test_secrets_are_deleted_with_a_cancelled_plan(keepers, ada):
    """Also those of steps without a call."""
    waits = step(1, "wipe", parameters={"host": "db1", "password": PASSWORD})
    plan = work_off(make_plan(ada, waits, step(2, "sign_in", parameters=SIGN_IN, dependencies=[1])))
    assert kept() == 2
    Rest(ada).post(f"plans/{plan.public_id}/cancel/")
    assert kept() == 0
    assert rows_with(PASSWORD) == []


@pytest.mark.parametrize("end", ["reject", "withdraw", "expire"])
def test_secrets_are_deleted_with_a_call_that_will_not_run(keepers, ada, rosa, end):
    """Those of other steps are kept while the plan runs."""
    ends = step(1, "wipe", parameters={"host": "db1", "password": PASSWORD})
    waits = step(2, "wipe", parameters={"host": "db1", "password": "of the other"})
    plan = work_off(make_plan(ada, ends, waits))
    assert kept() == 2
    request = request_of(plan)
    if end == "reject":
        reject(plan, rosa)
    elif end == "withdraw":
        Rest(ada).post(f"approvals/{request.public_id}/withdraw/")
    else:
        expire_if_due(request, request.expires_at)
    plan.refresh_from_db()
    assert (plan.status, step_of(plan).status, step_of(plan, 2).waiting_for) == ("in_progress", "failed", "approval")
    assert CallSecret.objects.get().step_ref == "2"
    assert rows_with(PASSWORD) == []


def test_secrets_of_steps_are_stored_until_the_plan_ends(keepers, ada):
    """Encrypted."""
    later = step(2, "sign_in", parameters=SIGN_IN, dependencies=[1])
    plan = make_plan(ada, step(1, "jot"), later, start=False)
    assert (kept(), rows_with(PASSWORD)) == (1, [])
    body = Rest(ada).get(f"plans/{plan.public_id}/").json()
    assert body["steps"][1]["parameters"] == {"user": "ada", "password": HIDDEN}
    Rest(ada).post(f"plans/{plan.public_id}/start/")
    work_off(plan)
    assert keepers[-1] == PASSWORD
    assert (plan.status, kept(), rows_with(PASSWORD)) == ("completed", 0, [])


def test_retried_call_has_its_secret(keepers, ada):
    """It is kept until the last attempt."""
    ACTS["try_in"] = lambda given: 1 / 0
    plan = work_off(make_plan(ada, step(1, "try_in", parameters=SIGN_IN)))
    assert (call_of(plan).status, kept()) == ("ready", 1)
    ACTS.clear()
    plan.steps.update(ready_at=plan.created_at)
    work_off(plan)
    assert (call_of(plan).status, kept()) == ("completed", 0)
    assert keepers == [PASSWORD, PASSWORD]


def test_a_failed_step_is_retried_with_its_secret_while_the_plan_goes_on(keepers, ada):
    """Once the plan has failed, the secret is gone and must be entered again."""
    ACTS["sign_in"] = lambda given: 1 / 0
    waits = step(2, "wipe", parameters={"host": "db1", "password": "of the other"})
    plan = work_off(make_plan(ada, step(1, "sign_in", parameters=SIGN_IN), waits))
    assert (step_of(plan).status, kept()) == ("failed", 2)
    ACTS.clear()
    retry_plan(plan, by=Requester(ada), step_id=1)
    work_off(plan)
    assert (step_of(plan).status, kept()) == ("completed", 1)
    assert keepers.count(PASSWORD) == 2


def test_a_retry_after_the_end_asks_for_the_secret(keepers, ada):
    """With the name of what is missing, and no value."""
    ACTS["sign_in"] = lambda given: 1 / 0
    plan = work_off(make_plan(ada, step(1, "sign_in", parameters=SIGN_IN)))
    assert (plan.status, kept()) == ("failed", 0)
    Rest(ada).post(f"plans/{plan.public_id}/retry/")
    work_off(plan)
    assert "'password'" in step_of(plan).error


def test_only_the_owner_clones_a_plan_with_its_secrets(keepers, ada, ben):
    """Otherwise a stranger could use secrets they may not see."""
    plan = make_plan(ada, step(1, "sign_in", parameters=SIGN_IN), start=False)
    copy = clone_plan(plan, by=Requester(ada), start=True)
    work_off(copy)
    assert keepers == [PASSWORD]
    with pytest.raises(PlanProblems) as refusal:
        clone_plan(plan, by=Requester(ben))
    assert [(each.path, each.code) for each in refusal.value.problems] == [
        ("steps.0.parameters.password", "secret_missing")
    ]


def test_a_placeholder_is_not_taken_for_a_value(keepers, ada):
    """A client that sends back what it was shown gets the name of the missing secret."""
    for arguments, path in (
        ({"user": "ada", "password": HIDDEN}, "password"),
        ({"user": 'x {"$secret": "password"}', "password": "1"}, "user"),
    ):
        answer = Rest(ada).post("calls/", {"tool": "sign_in", "arguments": arguments})
        assert answer.status_code == 422
        assert [(each["path"], each["code"]) for each in answer.json()["errors"]] == [(path, "secret_missing")]


def test_edit_of_a_plan_keeps_unchanged_secrets(keepers, ada):
    """New ones are redacted."""
    plan = make_plan(ada, step(1, "sign_in", parameters=SIGN_IN), start=False)
    for password, given in ((HIDDEN, PASSWORD), ("a new one", "a new one")):
        edit = {"step_id": 1, "parameters": {"user": "eve", "password": password}}
        assert Rest(ada).patch(f"plans/{plan.public_id}/", {"edit": [edit]}).status_code == 200
        work_off(clone_plan(plan, by=Requester(ada), start=True))
        assert keepers[-1] == given
    assert (rows_with(PASSWORD), rows_with("a new one")) == ([], [])


MOVES = (
    {"host": "h", "password": HIDDEN, "note": HIDDEN},
    {"host": 'see {"$secret":"password"}', "password": "new"},
    {"host": "h", "password": "new", "note": [{"deep": HIDDEN}]},
    {"host": "h", "password": "new", "note": {'{"$secret":"password"}': 1}},
)
"""Arguments that would store and show the password elsewhere."""


@pytest.mark.parametrize("arguments", MOVES)
def test_secrets_cannot_be_moved(keepers, ada, rosa, arguments):
    """Neither by editing a call, changing the plan, nor entering arguments for a waiting step."""
    given = {"host": "db1", "password": PASSWORD}
    plan = work_off(make_plan(ada, step(1, "wipe", parameters=given), step(2, "wipe", parameters=given)))
    planned = make_plan(ada, step(1, "wipe", parameters=given), start=False)
    held = request_of(plan)
    body = {"verdict": "approve", "seen_digest": held.digest, "arguments": arguments}
    send_back(plan, rosa, step_id=2)
    edit = {"step_id": 1, "parameters": arguments}
    for answer in (
        Rest(rosa).post(f"approvals/{held.public_id}/reviews/", body),
        Rest(ada).post(f"plans/{plan.public_id}/input/", {"step_id": 2, "arguments": arguments}),
        Rest(ada).patch(f"plans/{planned.public_id}/", {"edit": [edit]}),
    ):
        assert (answer.status_code, {each["code"] for each in answer.json()["errors"]}) == (422, {"secret_moved"})
        assert PASSWORD not in answer.content.decode()
    assert rows_with(PASSWORD) == []


@pytest.mark.parametrize("more", [{}, {"parameters": {"value": {"password": HIDDEN}}}])
def test_secret_is_not_passed_to_a_tool_that_would_show_it(keepers, ada, more):
    """Changing the tool requires entering the value again."""
    plan = make_plan(ada, step(1, "account", parameters={"account": {"host": "h", "pin": PASSWORD}}), start=False)
    answer = Rest(ada).patch(f"plans/{plan.public_id}/", {"edit": [{"step_id": 1, "tool": "jot", **more}]})
    assert answer.status_code == 422
    wanted = Rest(ada).patch(f"plans/{plan.public_id}/", {"edit": [{"step_id": 1, "description": "Open it"}]})
    assert (wanted.status_code, rows_with(PASSWORD)) == (200, [])


def test_tool_with_fewer_secret_parameters_needs_the_value_again(keepers, ada):
    """The parameter has the same name, but would be stored in clear text."""
    with clean_registry():

        @tool
        def open_in(user: str, password: str) -> None:
            """Sign in without care."""

    register_tool(open_in)
    try:
        plan = make_plan(ada, step(1, "sign_in", parameters=SIGN_IN), start=False)
        answer = Rest(ada).patch(f"plans/{plan.public_id}/", {"edit": [{"step_id": 1, "tool": "open_in"}]})
        body = [(each["path"], each["code"]) for each in answer.json()["errors"]]
    finally:
        registry._TOOLS.pop("open_in")
    assert ("edit.0.parameters.password", "secret_moved") in body
    assert rows_with(PASSWORD) == []


def test_references_bring_secrets_to_their_places(keepers, ada):
    """A reference is no secret; its value is."""
    ACTS["jot"] = lambda given: "from the safe"
    first = step(1, "jot", expected_key="found", output_path=["results", "0"])
    second = step(2, "wipe", parameters={"host": "h", "password": "${found}"}, dependencies=[1])
    plan = work_off(make_plan(ada, first, second))
    assert step_of(plan, 2).parameters_json["password"] == "${found}"
    assert call_of(plan, 2).arguments_json["password"] == HIDDEN
    assert "from the safe" not in Round.objects.get().arguments + Round.objects.get().preview


def test_known_secret_formats_are_redacted_in_memory_and_texts(keepers, stage, ada):
    """Steps of the plan still run with them."""
    key = "AKIA" + "Q7" * 8
    seen: list[object] = []
    stage.acts["safe"] = lambda value, context: seen.append(context.memory["key"])
    first = step(1, "jot", parameters={"value": "use ${key} now"}, description=f"With {key}")
    work_off(make_plan(ada, first, act(2), memory={"key": key}, goal=f"Use {key}"))
    assert keepers == [f"use {key} now"]
    assert seen == [{"$secret": "aws_access_key"}]
    assert rows_with(key) == []
    assert (delete_expired_secrets(), kept()) == (1, 0)


def test_secret_interpolated_into_text_fails_the_step(keepers, ada):
    """It would not be recognised there; nothing of it is stored."""
    key = "AKIA" + "Q7" * 8
    plan = work_off(make_plan(ada, step(1, "jot", parameters={"value": "x${key}x"}), memory={"key": key}))
    assert (step_of(plan).status, keepers, rows_with(key)) == ("failed", [], [])


def test_key_rotation_invalidates_no_early_request(stage, keepers, ada, rosa, settings):
    """The call is the same although its HMAC differs."""
    given = {"host": "db1", "password": PASSWORD}
    waits, later = act(1, "a", "dangerous"), step(2, "wipe", parameters=given, dependencies=[1])
    plan = work_off(make_plan(ada, waits, later))
    (asked,) = slices.prepare_slice(plan, 1, by=rosa).requests
    settings.TOOLGATE_SECRET_KEYS = [Fernet.generate_key().decode(), *settings.TOOLGATE_SECRET_KEYS]
    approve(plan, rosa)
    work_off(plan)
    assert (request_of(plan, 2), request_of(plan, 2).status) == (asked, "pending")
    approve(plan, rosa, 2)
    assert (work_off(plan).status, keepers[-1]) == ("completed", PASSWORD)


def test_sweep_deletes_expired_secrets(keepers, ada):
    """And keeps those still needed."""
    plan = make_plan(ada, step(1, "sign_in", parameters=SIGN_IN), step(2, "sign_in", parameters=SIGN_IN), start=False)
    assert delete_expired_secrets() == 0
    plan.steps.filter(step_id=1).update(status="completed")
    assert (delete_expired_secrets(), kept()) == (1, 1)
    type(plan).objects.filter(pk=plan.pk).update(status="cancelled")
    assert (delete_expired_secrets(), kept()) == (1, 0)


def test_check_must_not_contain_a_secret(keepers, ada):
    """Checks are stored and shown in clear text."""
    wrong = step(1, "jot", done_check="'ghp_" + "a1" * 18 + "' in x", expected_key="x")
    answer = Rest(ada).post("plans/", {"goal": "x", "steps": [wrong]})
    assert answer.status_code == 422
    assert "secret_in_check" in {each["code"] for each in answer.json()["errors"]}


def test_secrets_in_comments_are_redacted(keepers, ada, rosa):
    key = "ghp_" + "a1" * 18
    body = {"tool": "wipe", "arguments": {"host": "h", "password": PASSWORD}, "reason": f"With {key}"}
    held = Rest(ada).post("calls/", body).json()
    request = request_of(step_of_call(held["id"]).plan)
    assert request.call.reason == 'With {"$secret":"github_token"}'
    review = {"verdict": "reject", "seen_digest": request.digest, "comment": f"Not with {key}"}
    assert Rest(rosa).post(f"approvals/{request.public_id}/reviews/", review).status_code == 201
    assert rows_with(key) == []


def test_new_request_after_a_change_has_the_secret(keepers, ada, rosa):
    plan = work_off(make_plan(ada, step(1, "wipe", parameters={"host": "a", "password": PASSWORD})))
    first = call_of(plan)
    Call.objects.filter(pk=first.pk).update(arguments=first.arguments.replace('"a"', '"b"'))
    approve(plan, rosa)
    work_off(plan)
    again = call_of(plan)
    assert (again.pk != first.pk, again.status, kept()) == (True, "held", 1)
    approve(plan, rosa)
    work_off(plan)
    assert (keepers[-1], kept(), rows_with(PASSWORD)) == (PASSWORD, 0, [])
