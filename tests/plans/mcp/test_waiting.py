"""Waits whose connection is closed: by a client that gives up, or by one that cancels."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from plans.live.broadcast import BroadcastChannel
from plans.mcp import waiting
from plans.mcp.callers import SCOPE_KEY, SESSION_ID_HEADER, Caller, session_id_for
from plans.mcp.waiting import Cancellations, Wait, usual_seconds

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


class Introduced:
    """A request of a client as the handlers see it: by `clientInfo`, or by headers only."""

    def __init__(self, *, name: str | None, user_agent: str, session_id: bytes, progress: bool, held: int | None):
        info = SimpleNamespace(client_info=SimpleNamespace(name=name))
        caller = Caller(cast(Any, SimpleNamespace(pk=1, hold_seconds=held)), cast(Any, None), user_agent)
        headers = [(SESSION_ID_HEADER, session_id)] if session_id else []
        self.session = SimpleNamespace(client_params=info if name is not None else None)
        self.meta = {"progress_token": 1} if progress else {}
        self.request = SimpleNamespace(scope={SCOPE_KEY: caller, "headers": headers})


def seconds_of(
    name: str | None = None,
    user_agent: str = "node",
    session_id: bytes = b"",
    progress: bool = False,
    held: int | None = None,
) -> float:
    context: Any = Introduced(name=name, user_agent=user_agent, session_id=session_id, progress=progress, held=held)
    return usual_seconds(context)


@pytest.mark.parametrize(
    ("seconds", "request_facts"),
    [  # names and User-Agents as the released clients send them
        (240, {"name": "claude-code", "progress": True}),
        (240, {"user_agent": "claude-code/2.1.332 (sdk-cli)"}),
        (240, {"user_agent": "codex-mcp-client/0.171.0", "progress": True}),
        (240, {"user_agent": "codex-mcp-client/0.171.0"}),
        (500, {"session_id": session_id_for("gemini-cli-mcp-client"), "progress": True}),
        (500, {"user_agent": "opencode/1.18.33", "progress": True}),
        (50, {"user_agent": "opencode/1.18.33"}),
        (50, {"name": "another", "progress": True}),
        (4, {"session_id": b"of-another-server"}),
        (4, {}),
        (7, {"name": "claude-code", "held": 7}),
        (600, {"held": 600}),
        (0, {"user_agent": "opencode/1.18.33", "progress": True, "held": 0}),
    ],
)
def test_held_call_waits_by_the_name_of_its_client(seconds: float, request_facts: dict[str, Any]) -> None:
    assert seconds_of(**request_facts) == seconds


@pytest.mark.parametrize(
    "name", ["claude-code", "codex-mcp-client", "gemini-cli x", "gemini-cli\r\n", "gemini-cli" * 20]
)
def test_other_clients_get_no_session_id(name: str) -> None:
    assert session_id_for(name) is None


@pytest.mark.service
async def test_a_cancellation_ends_waits_of_other_processes() -> None:
    """Of the same request only."""
    here, other_process = Cancellations(), BroadcastChannel[int](lambda news: None, "cancellations")
    with waiting.listed_wait(CALLER, 7) as wait, waiting.listed_wait(CALLER, 8) as other_wait:
        async with asyncio.timeout(60):
            while not wait.over.is_set():
                other_process.send({json.dumps(waiting._key(CALLER, 7)): 1})
                await asyncio.sleep(0.05)
        assert not other_wait.over.is_set()
    here.stop()
    other_process.stop()
