"""Waits whose connection is closed: by a client that gives up, or by one that cancels."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from plans.mcp import waiting
from plans.mcp.waiting import Wait

CALLER: Any = SimpleNamespace(token=SimpleNamespace(pk=1), user_agent="codex")


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_cancellation_after_the_hang_up_teaches_nothing(monkeypatch: pytest.MonkeyPatch, cancels: bool) -> None:
    recorded: list[Any] = []
    monkeypatch.setattr(waiting, "CANCELLATION_SECONDS", 60 if cancels else 0.01)
    monkeypatch.setattr(waiting, "_record_later", lambda *arguments: recorded.append(arguments[1:]))
    waiting._record_hang_up(waiting._key(CALLER, 7), Wait(), "codex", 9.0)
    if cancels:
        waiting.cancel(CALLER, 7)
    await asyncio.gather(*waiting._records)
    assert recorded == ([] if cancels else [(1, "codex", 9.0)])
    assert not waiting._hung_up
