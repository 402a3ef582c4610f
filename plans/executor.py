"""The threads that claim, run and finish. Each owns one database connection and stays with a plan for one turn."""

import logging
import os
import secrets
import socket
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import monotonic, sleep

from django.db import connection
from django.utils import timezone

from catalog.definitions import PREVIEW_SECONDS
from catalog.errors import Conflict
from catalog.problems import log_unexpected
from plans import carriers, engine
from plans.claims import on_sqlite
from plans.work import Run, Work

log = logging.getLogger("toolgate.executor")
QUICK_PLANS = 256
QUICK_SECONDS = 0.003
"""A plan whose steps end faster than this needs no second thread where writers take turns."""
GRACE_SECONDS = 0.25
"""How far past its deadline a sync handler may be before its thread is written off."""


@dataclass(slots=True, eq=False)
class Seat:
    """One thread's place: what it works on, and until when the handler may run."""

    turn: engine.Turn
    work: Work | None = None
    ends_at: float = float("inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, work: Work | None) -> None:
        """Note what the thread works on from now on."""
        with self.lock:
            self.work, self.ends_at = work, _ends_at(work)

    def back(self) -> None:
        """Note that the tool's code has returned: from here on the thread ends its work itself."""
        with self.lock:
            self.ends_at = float("inf")

    def give_up(self) -> Work | None:
        """Write the thread off when the tool is past its time; return the work to be ended in its place."""
        with self.lock:
            if self.work is None or monotonic() < self.ends_at or self.turn.abandoned:
                return None
            self.turn.abandoned = True
            return self.work


def _ends_at(work: Work | None) -> float:
    if work is None:
        return float("inf")
    if not isinstance(work, Run):
        return monotonic() + PREVIEW_SECONDS + GRACE_SECONDS
    seconds = work.order.target.tool.timeout
    if work.plan.deadline_at is not None:
        seconds = min(seconds, (work.plan.deadline_at - timezone.now()).total_seconds())
    return monotonic() + seconds + GRACE_SECONDS


class Executor:
    """A pool of threads in this process, fed by hints."""

    def __init__(self, threads: int) -> None:
        self.owner = f"{socket.gethostname()[:24]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._threads = threads
        self._hints: SimpleQueue[int | Run | None] = SimpleQueue()
        self._taken: set[int] = set()
        self._seats: set[Seat] = set()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._advanced: dict[int, float] = {}

    def start(self) -> None:
        """Start the threads and listen for hints."""
        carriers.carry_to(self._hints.put)
        carriers.open_desk(self)
        for _ in range(self._threads):
            self._add_thread()

    def stop(self, seconds: float = 30.0) -> None:
        """Claim nothing more; run what was taken, and wait for what is running, at most this long."""
        carriers.close_desk(self)
        self._stopping.set()
        carriers.carry_no_more(self._hints.put)
        for _ in range(self._threads):
            self._hints.put(None)
        ends = monotonic() + seconds
        while self._seats and monotonic() < ends:
            sleep(0.02)

    def working_on(self) -> list[int]:
        """Return the keys of the steps whose leases this process must renew."""
        works = [seat.work for seat in list(self._seats) if not seat.turn.abandoned]
        return [*list(self._taken), *(work.step.pk for work in works if work is not None)]

    def take(self, run: Run) -> None:
        """Run a call that was started in this executor's name, as soon as a thread is free."""
        self._taken.add(run.step.pk)
        self._hints.put(run)

    def end_overdue(self) -> None:
        """End the work of tools that are past their time, and replace the threads they keep."""
        for seat in list(self._seats):
            work = seat.give_up()
            if work is not None:
                log.warning("plan %s: the tool of step %s is past its time", work.plan.ref, work.step.step_id)
                with self._lock:
                    self._seats.discard(seat)
                self._add_thread()
                engine.abandon(work)

    def _add_thread(self) -> None:
        seat = Seat(engine.Turn(self.owner))
        with self._lock:
            self._seats.add(seat)
        threading.Thread(target=self._live, args=[seat], name="toolgate-executor", daemon=True).start()

    def _live(self, seat: Seat) -> None:
        try:
            while not seat.turn.abandoned and (job := self._hints.get()) is not None:
                if isinstance(job, Run):
                    self._stay_with(job.plan.pk, seat, job)
                elif not self._stopping.is_set() and self._needs_help(job):
                    self._stay_with(job, seat)
        finally:
            with self._lock:
                self._seats.discard(seat)
            if not self._stopping.is_set() and not seat.turn.abandoned:
                self._add_thread()  # whatever ended this one
            connection.close()

    def _needs_help(self, plan_pk: int) -> bool:
        """Put a hint back while another thread ends this plan's steps so quickly that two would only queue up."""
        if not on_sqlite() or monotonic() - self._advanced.get(plan_pk, 0.0) > QUICK_SECONDS:
            return True
        sleep(QUICK_SECONDS)
        self._hints.put(plan_pk)
        return False

    def _stay_with(self, plan_pk: int, seat: Seat, work: Work | None = None) -> None:
        """Work on one plan for one turn, from what was taken on. What goes wrong here leaves a lease that expires."""
        try:
            seat.turn = engine.Turn(self.owner, stopping=self._stopping, back=seat.back)
            work = work or engine.claim(plan_pk, owner=self.owner)
            while work is not None:
                seat.take(work)
                self._taken.discard(work.step.pk)
                work = engine.advance(work, seat.turn)
                self._advanced[plan_pk] = monotonic()
        except Conflict as lost:
            log.info("plan %s: someone else got there first: %s", plan_pk, lost)
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log.warning("plan %s: a step was dropped; its lease will expire", plan_pk)
            log_unexpected(error)
            connection.close()
        finally:
            seat.take(None)
            self._forget_slow_plans()

    def _forget_slow_plans(self) -> None:
        """Keep the table of quick plans small."""
        if len(self._advanced) > QUICK_PLANS:
            old = monotonic() - QUICK_SECONDS
            self._advanced = {plan: at for plan, at in list(self._advanced.items()) if at > old}
