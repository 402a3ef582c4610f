"""Waits for a call: of a thread for 50 ms, and of a coroutine for longer."""

import asyncio
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User

from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.executor.pool import ExecutorPool
from plans.live import waits
from plans.live.waits import until_settled
from plans.store.requesters import Requester
from tests.plans.socket_clients import apart


@pytest.mark.db
async def test_coroutine_waits_until_the_call_ends(executor: ExecutorPool, ada: User) -> None:
    """An ended or unknown call returns at once."""
    order = CallOrder("render_text", {"template": "hello", "values": {}})
    call = await apart(create_call, order, by=Requester(ada))
    async with asyncio.timeout(60):
        await until_settled(call.public_id, 600)
    assert (await apart(Call.objects.get, pk=call.pk)).status == "completed"
    async with asyncio.timeout(60):
        await until_settled(call.public_id, 600)
        await until_settled("call_none", 600)


@pytest.mark.db
async def test_waiting_ends_when_time_is_over(executor: ExecutorPool, ada: User) -> None:
    """The call stays held."""
    order = CallOrder("write_file", {"path": "a.txt", "content": "a"})
    call = await apart(create_call, order, by=Requester(ada))
    async with asyncio.timeout(60):
        await until_settled(call.public_id, 0.3)
    assert (await apart(Call.objects.get, pk=call.pk)).status == "held"


class Reads:
    """Counts the reads of a call that runs until it is told to have ended."""

    def __init__(self):
        self.count, self.ended = 0, False

    def __call__(self):
        self.count += 1
        return "completed" if self.ended else "running"


@pytest.fixture
def call(monkeypatch):
    """A call that runs in a plan whose storing this thread committed as event 4."""
    tx = SimpleNamespace(plan_ref="plan_1", last_seq=4)
    monkeypatch.setattr(waits, "latest_transaction", lambda: tx)
    monkeypatch.setattr(waits, "_last_seqs", {"plan_1": 4})
    return SimpleNamespace(status="running", plan_ref="plan_1")


def read_soon(call, reads):
    return waits.read_soon(call, reads, lambda found: found == "running")


def test_call_that_ended_before_the_wait_began_is_read_at_once(call, monkeypatch):
    monkeypatch.setattr(waits, "BRIEF_WAIT_SECONDS", 60.0)
    reads = Reads()
    reads.ended = True
    waits.wake_waiters("plan_1", 8)

    assert read_soon(call, reads) == "completed"
    assert reads.count == 1


def test_running_call_is_read_once_when_the_time_is_over(call):
    reads = Reads()

    assert read_soon(call, reads) == "running"
    assert reads.count == 1


def test_only_the_last_plans_are_remembered(monkeypatch):
    monkeypatch.setattr(waits, "PLANS_REMEMBERED", 2)
    monkeypatch.setattr(waits, "_last_seqs", {})
    for number in range(5):
        waits.wake_waiters(f"plan_{number}", 1)

    assert list(waits._last_seqs) == ["plan_3", "plan_4"]
