"""Races of a client's questions and reports: an allowance is used once, and each call has one end."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.requests import deadlines
from approvals.reviews.decisions import revoke
from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call, ClientRun
from plans.actions.control import cancel_plan
from plans.coding_agents import deferred
from plans.coding_agents.hooks import HookPatience, answer_hook
from plans.coding_agents.permissions import PermissionAnswer
from plans.engine import client_runs
from plans.models import Plan
from plans.store.requesters import Requester
from tests import counts
from tests.invariants import assert_invariants
from tests.plans.coding_agents.conftest import CodingAgent, answer_request, call_of, request_for, run_of
from tests.plans.coding_agents.recorded import HOOK_FORMATS, decision_in, recorded
from tests.racing import Act, at_once, rounds_at_once, staggered

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.timeout(counts.seconds(1800)),
]
ROUNDS = counts.count(200, 20)
AT_ONCE = 20


@pytest.fixture(autouse=True)
def no_bounds(settings: Any) -> None:
    """Lift the limits on pending requests: there is one a round."""
    settings.TOOLGATE_MAX_PENDING_PER_REQUESTER = 0
    settings.TOOLGATE_MAX_PENDING_PER_TOKEN = 0


def test_first_questions_with_one_call_id_make_one_call(agent: CodingAgent) -> None:
    answers = at_once(*[partial(agent.ask)] * AT_ONCE)
    assert {answer.decision for answer in answers} == {"wait"}
    assert len({answer.call for answer in answers}) == Call.objects.count() == 1
    assert_invariants()


def test_allowance_without_call_id_is_used_once(agent: CodingAgent, rosa: User) -> None:
    first = agent.ask(call_id="")
    answer_request(first, rosa)
    answers = at_once(*[partial(agent.ask, call_id="")] * AT_ONCE)
    allowed = [answer for answer in answers if answer.decision == "allow"]
    assert [answer.call for answer in allowed] == [first.call]
    assert (call_of(first).attempt, {answer.decision for answer in answers}) == (1, {"allow", "wait"})
    assert_invariants()


def test_allowance_with_call_id_starts_its_call_once(agent: CodingAgent, rosa: User) -> None:
    first = agent.ask()
    answer_request(first, rosa)
    answers = at_once(*[partial(agent.ask)] * AT_ONCE)
    assert {(answer.decision, answer.call) for answer in answers} == {("allow", first.call)}
    assert call_of(first).attempt == 1
    assert_invariants()


def approved(agent: CodingAgent, rosa: User, *, handed_out: bool) -> list[tuple[str, PermissionAnswer]]:
    """Return one call a round, by its client's id: approved, and handed out or not."""
    found = []
    for number in range(ROUNDS):
        call_id = f"toolu_{number}"
        answer = agent.ask(call_id=call_id)
        answer_request(answer, rosa)
        if handed_out:
            agent.ask(call_id=call_id)
        found.append((call_id, answer))
    return found


def test_report_against_expiry(agent: CodingAgent, rosa: User) -> None:
    calls = approved(agent, rosa, handed_out=True)
    ClientRun.objects.update(allowed_until=clock.now() - timedelta(seconds=1))
    races: list[list[Act]] = [
        [partial(agent.report, call_id, output="done"), partial(client_runs._expire, run_of(answer))]
        for call_id, answer in calls
    ]
    for (_, answer), results in zip(calls, rounds_at_once(staggered(races, counts.seed())), strict=True):
        assert results[0].effect in ("ended", "late")
        assert call_of(answer).status == "completed"
    assert_invariants()


def withdraw_approval(answer: PermissionAnswer, rosa: User) -> object:
    return revoke(request_for(answer), by=rosa, comment="Changed my mind.")


def expire(answer: PermissionAnswer, rosa: User) -> object:
    request = request_for(answer)
    return deadlines.expire_if_due(request, request.not_after or request.expires_at)


def cancel(answer: PermissionAnswer, rosa: User) -> object:
    plan = Plan.objects.get(public_id=call_of(answer).plan_ref)
    return cancel_plan(plan, by=Requester(plan.author))


@pytest.mark.parametrize("end", [withdraw_approval, expire, cancel])
def test_hand_out_against_end(agent: CodingAgent, rosa: User, end: Callable[[PermissionAnswer, User], object]) -> None:
    """Either the call is handed out, or it never ran."""
    calls = approved(agent, rosa, handed_out=False)
    races: list[list[Act]] = [
        [partial(agent.ask, call_id=call_id), partial(end, answer, rosa)] for call_id, answer in calls
    ]
    for (_, answer), results in zip(calls, rounds_at_once(staggered(races, counts.seed())), strict=True):
        call = call_of(answer)
        if results[0].decision == "allow":
            assert (call.status, call.attempt) == ("running", 1)
        else:
            assert (results[0].decision, call.attempt, run_of(answer).allowed_at) == ("deny", 0, None)
            assert not isinstance(results[1], Conflict)
    assert_invariants()


def test_process_that_dies_after_the_start_loses_nothing(
    agent: CodingAgent, rosa: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same question gets the same answer; without it, the outcome is unknown when the time is over."""

    class Killed(BaseException):
        pass

    def die(*args: Any, **kwargs: Any) -> Any:
        raise Killed

    answers = [agent.ask(), agent.ask(call_id="")]
    for answer, call_id in zip(answers, ("toolu_1", ""), strict=True):
        answer_request(answer, rosa)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(client_runs, "confirm_start", die)
            agent.ask(call_id=call_id)
    assert (agent.ask().decision, call_of(answers[0]).attempt) == ("allow", 1)
    assert agent.ask(call_id="").call != answers[1].call
    ClientRun.objects.filter(allowed_until__isnull=False).update(allowed_until=clock.now() - timedelta(seconds=1))
    assert client_runs.expire_unreported(clock.now()) == 2
    assert call_of(answers[1]).status == "outcome_unknown"
    assert_invariants()


def test_deferred_call_goes_to_one_of_many_resumed_processes(agent: CodingAgent, rosa: User) -> None:
    body = recorded("claude-code_PreToolUse_Bash") | {"session_id": agent.session}
    hook_format = HOOK_FORMATS[agent.client]

    def ask_by_hook() -> tuple[str, Any, str | None]:
        answer = answer_hook(hook_format, hook_format.read_event(body), HookPatience(0.0, may_defer=True), by=agent.by)
        return decision_in(hook_format, dict(answer.document))

    assert ask_by_hook()[0] == "defer"
    run = ClientRun.objects.select_related("call__approval").get()
    answer_request(agent.ask(call_id=run.client_call_id, input=body["tool_input"], cwd=run.cwd), rosa)
    call = run.call.public_id
    claims = at_once(*[partial(claim_or_none, call, agent)] * AT_ONCE)
    assert len([each for each in claims if each is not None]) == 1

    def ask_elsewhere(*, repeats: bool) -> tuple[str, Any, str | None]:
        more = {"input": body["tool_input"], "cwd": run.cwd, "repeats": repeats}
        return agent.ask(call_id=run.client_call_id, **more).decision, None, None

    doors: list[Act] = [ask_by_hook, partial(ask_elsewhere, repeats=False)] * (AT_ONCE // 2)
    assert sorted(decision for decision, *_ in at_once(*doors)) == ["allow", *["deny"] * (AT_ONCE - 1)]
    own_questions = at_once(*[partial(ask_elsewhere, repeats=True)] * AT_ONCE)
    assert sorted(decision for decision, *_ in own_questions) == ["allow", *["deny"] * (AT_ONCE - 1)]
    assert Call.objects.get().attempt == 1
    assert_invariants()


def claim_or_none(call: str, agent: CodingAgent) -> deferred.Claim | None:
    """Claim a deferred call; None if another runner has it."""
    try:
        return deferred.claim(call, "runner", seconds=60, by=agent.by)
    except Conflict:
        return None
