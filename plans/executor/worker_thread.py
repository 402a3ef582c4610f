"""State of one executor thread: its plan, its work and the deadline of its handler."""

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic

from catalog.core import clock
from catalog.dispatch import pipeline
from plans.engine import loop
from plans.engine.work import RunningCall, WorkItem

QUICK_SECONDS = 0.002
"""A plan whose tools run shorter than this gains little from a second thread, because its writers are serialized."""
LONG_SECONDS = 0.05
"""A thread whose tool has run for longer counts as unavailable; with a shorter one it will soon be free."""
GRACE_SECONDS = 0.25
"""Time that a sync handler may exceed its deadline before its thread is abandoned."""
PATIENT_SECONDS = 0.5
"""After waiting this long for a plan's lock, a thread keeps others away from it: the lock's holder may be frozen."""
STOP_SECONDS = 1.0
"""Time that a handler has to react to a request to stop, before it is left running and its thread replaced."""


@dataclass(slots=True, eq=False)
class WorkerThread:
    """State of one thread, also while it is detached: its plan, its work and the deadline of its handler."""

    turn: loop.TimeSlice
    plan_pk: int | None = None
    claiming_since: float = float("inf")
    work: WorkItem | None = None
    taken_at: float = float("inf")
    was_slow: bool = False
    ends_at: float = float("inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, work: WorkItem | None) -> None:
        """Set the thread's current work."""
        with self.lock:
            self.work, self.taken_at, self.ends_at = work, float("inf") if work is None else monotonic(), _ends_at(work)
            self.claiming_since = float("inf")

    def back(self) -> None:
        """Record that the tool's code has returned, so that the thread finishes its work itself."""
        with self.lock:
            if self.taken_at < float("inf"):
                self.was_slow = self.is_slow_now()
            self.taken_at = self.ends_at = float("inf")

    def stop(self, plan_pks: Collection[int]) -> None:
        """Ask a running handler of one of these plans to stop within STOP_SECONDS."""
        with self.lock:
            if isinstance(self.work, RunningCall) and self.work.plan.pk in plan_pks and self.taken_at < float("inf"):
                self.work.stop.set()
                self.ends_at = min(self.ends_at, monotonic() + STOP_SECONDS)

    def is_kept_from(self, plan_pk: int) -> bool:
        """Return whether the thread has waited for this plan's lock for longer than PATIENT_SECONDS."""
        return self.plan_pk == plan_pk and monotonic() > self.claiming_since + PATIENT_SECONDS

    def is_slow_now(self) -> bool:
        """Return whether the thread has been in a tool's code for longer than QUICK_SECONDS."""
        return monotonic() > self.taken_at + QUICK_SECONDS

    def is_long(self) -> bool:
        """Return whether the thread has been in a tool's code for longer than LONG_SECONDS."""
        return monotonic() > self.taken_at + LONG_SECONDS

    def is_detachable(self) -> bool:
        """Return whether the thread runs a call with an async handler, and so holds nothing open while it waits."""
        return isinstance(self.work, RunningCall) and self.work.prepared.target.tool.is_async

    def abandon_if_overdue(self) -> WorkItem | None:
        """Abandon the thread if its tool is past its deadline; return the work to end in its place."""
        with self.lock:
            if self.work is None or monotonic() < self.ends_at or self.turn.abandoned:
                return None
            self.turn.abandoned = True
            return self.work


def _ends_at(work: WorkItem | None) -> float:
    if work is None:
        return float("inf")
    if not isinstance(work, RunningCall):
        return monotonic() + pipeline.PREVIEW_SECONDS + GRACE_SECONDS
    seconds = work.seconds
    if work.plan.deadline_at is not None:
        seconds = min(seconds, (work.plan.deadline_at - clock.now()).total_seconds())
    return monotonic() + seconds + GRACE_SECONDS
