"""State of one executor thread: its plan, its work and the deadline of its handler."""

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from time import monotonic

from catalog.core import clock
from catalog.dispatch import pipeline
from plans.engine import loop
from plans.engine.work import RunningCall, WorkItem

QUICK_SECONDS = 0.002
"""A plan whose tools run shorter than this gains little from a second thread, because its writers are serialized."""
LONG_SECONDS = 0.05
"""A thread whose tool has run for longer counts as unavailable. Before that, it is expected to be free soon."""
GRACE_SECONDS = 0.25
"""Time that a sync handler may exceed its deadline before its thread is abandoned."""
PATIENT_SECONDS = 0.5
"""After waiting this long for a plan's lock, a thread keeps others away from it: the lock's holder may be frozen."""
STOP_SECONDS = 1.0
"""Time that a handler has to react to a request to stop, before it is left running and its thread replaced."""


class ThreadState(Enum):
    IDLE = auto()
    CLAIMING = auto()
    """The thread waits for its plan's lock, to claim a step."""
    IN_TOOL = auto()
    """The thread is in a tool's code, or about to be."""
    STORING = auto()
    """The tool's code has returned; the thread finishes the work itself."""


@dataclass(slots=True, eq=False)
class WorkerThread:
    time_slice: loop.TimeSlice
    plan_pk: int | None = None
    work: WorkItem | None = None
    state: ThreadState = ThreadState.IDLE
    since: float = 0.0
    """The monotonic time since which it is claiming or in a tool's code."""
    ends_at: float = 0.0
    """The monotonic time at which the tool's code must have returned."""
    was_slow: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin_slice(self, plan_pk: int, time_slice: loop.TimeSlice, *, claims: bool) -> None:
        """Begin to work on a plan; `claims` says that the thread must first claim a step."""
        self.time_slice, self.was_slow, self.since = time_slice, False, monotonic()
        self.state = ThreadState.CLAIMING if claims else ThreadState.STORING
        self.plan_pk = plan_pk

    def end_slice(self) -> None:
        with self.lock:
            self.work, self.state = None, ThreadState.IDLE
        self.plan_pk = None

    def begin_work(self, work: WorkItem) -> None:
        """Set the thread's current work, and the time at which its tool's code must have returned."""
        seconds = pipeline.PREVIEW_SECONDS
        if isinstance(work, RunningCall):
            seconds = work.seconds
            if work.plan.deadline_at is not None:
                seconds = min(seconds, (work.plan.deadline_at - clock.now()).total_seconds())
        with self.lock:
            self.work, self.since = work, monotonic()
            self.ends_at, self.state = self.since + seconds + GRACE_SECONDS, ThreadState.IN_TOOL

    def leave_tool(self) -> None:
        """Record that the tool's code has returned, so that the thread finishes its work itself."""
        with self.lock:
            if self.state is ThreadState.IN_TOOL:
                self.was_slow = self.is_slow_now()
            self.state = ThreadState.STORING

    def stop(self, attempts: Collection[tuple[int, int]]) -> None:
        """Ask the running handler to stop within STOP_SECONDS if it is one of these: key and attempt of its step."""
        with self.lock:
            in_tool, work = self.state is ThreadState.IN_TOOL, self.work
            if isinstance(work, RunningCall) and (work.step.pk, work.step.attempt) in attempts and in_tool:
                work.stop.set()
                self.ends_at = min(self.ends_at, monotonic() + STOP_SECONDS)

    def is_kept_from(self, plan_pk: int) -> bool:
        """Return whether the thread has waited for this plan's lock for longer than PATIENT_SECONDS."""
        waits = self.plan_pk == plan_pk and self.state is ThreadState.CLAIMING
        return waits and monotonic() > self.since + PATIENT_SECONDS

    def is_slow_now(self) -> bool:
        return self.state is ThreadState.IN_TOOL and monotonic() > self.since + QUICK_SECONDS

    def is_long(self) -> bool:
        return self.state is ThreadState.IN_TOOL and monotonic() > self.since + LONG_SECONDS

    def is_detachable(self) -> bool:
        """Return whether the thread runs a call with an async handler, and so holds nothing open while it waits."""
        return isinstance(self.work, RunningCall) and self.work.prepared.target.tool.is_async

    def abandon_if_overdue(self) -> WorkItem | None:
        """Abandon the thread if its tool is past its deadline; return the work to end in its place."""
        with self.lock:
            in_time = self.state is not ThreadState.IN_TOOL or monotonic() < self.ends_at
            if in_time or self.time_slice.abandoned:
                return None
            self.time_slice.abandoned = True
            return self.work
