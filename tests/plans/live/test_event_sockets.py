"""WebSockets for programs: every event once and in order, also across reconnections."""

import asyncio
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide, undo_decision
from approvals.states import ReviewVerdict
from catalog.access.tokens import create_token
from plans.actions.call import CallOrder, create_call
from plans.actions.control import cancel_plan
from plans.executor.pool import ExecutorPool
from plans.models import Event, Plan
from plans.store.requesters import Requester
from tests.builders import make_plan, step, write_step
from tests.plans.socket_clients import apart, by_session, by_token, happen, opened

pytestmark = pytest.mark.db

STEPS = 40


def answer(verdict: ReviewVerdict, by: User, channel: str = "rest") -> str:
    """Decide the only request; return its id."""
    request = ApprovalRequest.objects.get()
    decide(request, by=by, decision=Decision(verdict, request.digest, comment="Because.", channel=channel))  # type: ignore[arg-type]
    return request.public_id


def path_of(plan: Plan, after: int | None = None) -> str:
    """Return the path of a plan's socket."""
    return f"/ws/plans/{plan.public_id}/" + ("" if after is None else f"?after={after}")


async def test_a_plan_is_followed_across_lost_connections(executor: ExecutorPool, ada: User) -> None:
    """A client that reconnects gets consecutive numbers until the plan's end."""
    headers = await apart(by_session, ada)
    chain = [step(number, dependencies=[number - 1] if number > 1 else []) for number in range(1, STEPS + 1)]
    plan = await apart(make_plan, ada, *chain)
    heard: list[dict[str, Any]] = [{"seq": 0, "type": ""}]
    while heard[-1]["type"] != "plan.completed":
        async with opened(path_of(plan, heard[-1]["seq"]), headers) as caller:
            for _ in range(37):
                heard.append(await caller.receive_json_from(timeout=60))
                if heard[-1]["type"] == "plan.completed":
                    break
    assert [event["seq"] for event in heard] == list(range(len(heard)))
    assert len(heard) - 1 == await apart(Event.objects.filter(plan=plan).count)


async def test_one_event_is_one_message_with_documented_fields(executor: ExecutorPool, ada: User) -> None:
    """Without arguments."""
    plan = await apart(make_plan, ada, write_step(1, content="a secret"))
    async with opened(path_of(plan), await apart(by_token, ada, "plans:read")) as caller:
        events = [await caller.receive_json_from(timeout=60) for _ in range(5)]
    assert {frozenset(event) for event in events} == {frozenset({"seq", "type", "at", "step_id", "data"})}
    types = [event["type"] for event in events]
    assert types == ["plan.created", "plan.started", "step.started", "approval.opened", "step.waiting"]
    assert "a secret" not in str(events)


async def test_client_that_reads_nothing_does_not_slow_others(transactional_db, catalog, ada: User) -> None:
    plan = await apart(make_plan, ada, step(1), start=False)
    headers = await apart(by_session, ada)
    async with opened(path_of(plan), headers) as asleep, opened(path_of(plan), headers) as awake:
        await apart(happen, plan, 1200)
        numbers = [(await awake.receive_json_from(timeout=60))["seq"] for _ in range(1201)]
        assert numbers == list(range(1, 1202))
        assert (await asleep.receive_json_from(timeout=60))["seq"] == 1


async def test_requests_are_reported_from_opening_to_the_end(executor: ExecutorPool, ada: User, rosa: User) -> None:
    """With the number of pending requests."""
    async with opened("/ws/approvals/", await apart(by_session, rosa)) as caller:
        plan = await apart(make_plan, ada, write_step(1), write_step(2, "other.txt"))
        messages = [await caller.receive_json_from(timeout=60) for _ in range(2)]
        assert [(each["type"], each["status"]) for each in messages] == [("approval.opened", "pending")] * 2
        assert messages[-1]["waiting"] == 2
        await apart(cancel_plan, plan, by=Requester(ada))
        messages = [await caller.receive_json_from(timeout=60) for _ in range(2)]
    assert [(each["type"], each["status"]) for each in messages] == [("approval.closed", "withdrawn")] * 2
    assert set(messages[-1]) == {"type", "id", "status", "waiting"}
    assert messages[-1]["waiting"] == 0


async def test_a_decision_closes_and_an_undo_brings_it_back(executor: ExecutorPool, ada, rosa, settings) -> None:
    """A request that is pending again is reported as changed."""
    settings.TOOLGATE_UNDO_SECONDS = 60
    async with opened("/ws/approvals/", await apart(by_token, rosa, "approvals:read")) as caller:
        await apart(make_plan, ada, write_step(1))
        assert (await caller.receive_json_from(timeout=60))["type"] == "approval.opened"
        public_id = await apart(answer, ReviewVerdict.APPROVE, rosa, "page")
        closed = await caller.receive_json_from(timeout=60)
        assert closed == {"type": "approval.closed", "id": public_id, "status": "approved", "waiting": 0}
        await apart(lambda: undo_decision(ApprovalRequest.objects.get(), by=rosa))
        again = await caller.receive_json_from(timeout=60)
    assert again == {"type": "approval.changed", "id": public_id, "status": "pending", "waiting": 1}


async def test_request_opened_and_closed_between_snapshots_is_reported_twice(executor: ExecutorPool, ada, rosa) -> None:
    """Opened, then closed."""
    async with opened("/ws/approvals/", await apart(by_session, ada)) as caller:
        await apart(make_plan, ada, write_step(1))
        async with asyncio.timeout(60):
            while not await apart(ApprovalRequest.objects.exists):
                await asyncio.sleep(0)
        await apart(answer, ReviewVerdict.REJECT, rosa)
        messages = [(await caller.receive_json_from(timeout=60))["type"] for _ in range(2)]
    assert messages == ["approval.opened", "approval.closed"]


async def test_agent_gets_only_its_own_requests(executor: ExecutorPool, ada: User, ben: User) -> None:
    """Others are neither reported nor counted: its own, later request comes first."""
    token, text = await apart(create_token, user=ben, kind="agent", scopes=["approvals:read", "plans:write"])
    headers = [(b"authorization", f"Bearer {text}".encode())]
    async with opened("/ws/approvals/", headers) as caller:
        await apart(make_plan, ada, write_step(1))
        async with asyncio.timeout(60):
            while not await apart(ApprovalRequest.objects.exists):
                await asyncio.sleep(0)
        order = CallOrder("write_file", {"path": "own.txt", "content": "x"})
        own = await apart(create_call, order, by=Requester(ben, token))
        messages = await caller.receive_json_from(timeout=60)
    request = await apart(ApprovalRequest.objects.get, call=own)
    assert messages == {"type": "approval.opened", "id": request.public_id, "status": "pending", "waiting": 1}


async def test_messages_of_clients_are_ignored(executor: ExecutorPool, ada: User) -> None:
    """A message neither changes nor breaks anything: the next event follows."""
    headers = await apart(by_session, ada)
    plan = await apart(make_plan, ada, step(1), start=False)
    async with opened(path_of(plan), headers) as of_plan, opened("/ws/approvals/", headers) as of_requests:
        for caller in (of_plan, of_requests):
            await caller.send_to(text_data="{")
            await caller.send_to(bytes_data=b"\x00")
        await apart(happen, plan)
        assert [(await of_plan.receive_json_from(timeout=60))["seq"] for _ in range(2)] == [1, 2]
        await apart(make_plan, ada, write_step(1))
        assert (await of_requests.receive_json_from(timeout=60))["type"] == "approval.opened"
