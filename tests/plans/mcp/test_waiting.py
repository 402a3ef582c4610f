"""Waits whose connection is closed: by a client that gives up, or by one that cancels."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from plans.live.broadcast import BroadcastChannel
from plans.mcp import waiting
from plans.mcp.waiting import Cancellations, Wait

CALLER: Any = SimpleNamespace(token=SimpleNamespace(pk=1), user_agent="codex")


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_cancellation_after_the_hang_up_teaches_nothing(monkeypatch: pytest.MonkeyPatch, cancels: bool) -> None:
    recorded: list[Any] = []
    monkeypatch.setattr(waiting, "CANCELLATION_SECONDS", 60 if cancels else 0.01)
    monkeypatch.setattr(waiting, "_record_later", lambda *arguments: recorded.append(arguments[1:]))
    waiting._record_hang_up(waiting._key(CALLER, 7), Wait(), "codex", 9.0)
    if cancels:
        Cancellations().cancel(CALLER, 7)
    await asyncio.gather(*waiting._records)
    assert recorded == ([] if cancels else [(1, "codex", 9.0)])
    assert not waiting._hung_up


@pytest.mark.service
async def test_a_cancellation_ends_waits_of_other_processes() -> None:
    """Of the same request only."""
    here, other_process = Cancellations(), BroadcastChannel[int](lambda news: None, "cancellations")
    with waiting._listed(CALLER, 7) as wait, waiting._listed(CALLER, 8) as other_wait:
        async with asyncio.timeout(60):
            while not wait.over.is_set():
                other_process.send({json.dumps(waiting._key(CALLER, 7)): 1})
                await asyncio.sleep(0.05)
        assert not other_wait.over.is_set()
    here.stop()
    other_process.stop()
