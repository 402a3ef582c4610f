"""Cancellation of a running call."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from catalog.context import CancelToken, Deadline, ToolContext
from catalog.core import clock
from catalog.core.workspace_files import Filesystem
from catalog.dispatch import pipeline
from catalog.dispatch.arguments import CallArguments
from catalog.testing import clean_registry
from catalog.tools import tool


def stoppable(seconds: float = 60) -> tuple[CancelToken, ToolContext]:
    """Return a stop, and the context of a call that listens to it."""
    stop = CancelToken()
    return stop, ToolContext(deadline=Deadline(clock.now() + timedelta(seconds=seconds), stop))


def test_listener_is_called_once():
    stop, notified = CancelToken(), []
    stop.listen(lambda: notified.append("before"))
    stop.set()
    stop.set()
    stop.listen(lambda: notified.append("after"))
    assert (stop.is_set, notified) == (True, ["before", "after"])


def test_deadline_of_a_cancelled_call_has_passed():
    """Whatever time was left; deadlines at the same moment stay equal."""
    stop, context = stoppable()
    deadline = context.deadline
    assert deadline is not None and not deadline.expired() and deadline.remaining() > 0
    stop.set()
    assert deadline.expired() and deadline.stopped and deadline.remaining() == 0
    assert deadline == Deadline(deadline.expires_at)


def test_call_cancelled_before_start_does_nothing():
    played = []
    with clean_registry():

        @tool
        def play() -> None:
            """Play."""
            played.append(1)

    stop, context = stoppable()
    stop.set()
    outcome = pipeline.run_call(play, CallArguments({}), context)
    assert (outcome.error_kind, outcome.retryable, played) == (pipeline.CANCELLED_BEFORE_START, False, [])


def set_once(begun: threading.Event, stop: CancelToken) -> None:
    """Cancel a call as soon as its handler runs."""
    assert begun.wait(60)
    stop.set()


def hanging(begun: threading.Event, late: str) -> Any:
    """Return a tool that writes and hangs, and what it makes of being cancelled."""
    with clean_registry():

        @tool
        async def write(*, context: ToolContext) -> str:
            """Write and hang."""
            files = context.resources.get(Filesystem)
            files.write_text("half.txt", "half")
            begun.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                files.write_text("cleaned.txt", "up")
                if late == "gives way":
                    raise
                if late == "raises":
                    raise ValueError("cut off") from None
            return "all the same"

    return write


@pytest.mark.parametrize("late", ["answers", "raises", "gives way"])
def test_an_async_handler_is_cancelled_and_waited_for(late: str, workspace: Any) -> None:
    """Its clean-up ends before its changes are undone; its result is evidence."""
    begun = threading.Event()
    stop, context = stoppable()
    threading.Thread(target=set_once, args=[begun, stop]).start()
    outcome = pipeline.run_call(hanging(begun, late), CallArguments({}), context)
    assert (outcome.error_kind, outcome.restored, list(workspace.iterdir())) == (
        pipeline.CANCELLED_WHILE_RUNNING,
        True,
        [],
    )
    said = None if outcome.late is None else outcome.late.value or outcome.late.error_kind
    assert said == {"answers": "all the same", "raises": "unknown_error", "gives way": None}[late]


def test_result_before_cancellation_counts():
    with clean_registry():

        @tool
        def answer() -> int:
            """Answer."""
            return 42

    stop, context = stoppable()
    outcome = pipeline.run_call(answer, CallArguments({}), context)
    stop.set()
    assert (outcome.success, outcome.value) == (True, 42)
