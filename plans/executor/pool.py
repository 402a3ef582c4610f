"""The threads that claim, run and finish steps, and their queue of hints and started calls.

Each thread owns one database connection and stays with a plan for one turn. However many hints a plan has, it stands in
the queue once, and goes to its end when one was taken: a wide plan keeps the others waiting for one turn of one thread.
"""

import logging
import os
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from time import monotonic, sleep

from django.db import connection

from catalog.core import clock
from catalog.core.tracing import log_extra
from catalog.core.transactions import log_unexpected
from catalog.dispatch import pipeline
from catalog.dispatch.runner import set_wait_context
from catalog.errors import Conflict
from plans import metrics
from plans.engine import execution, hints, recovery
from plans.engine.reports import ids_of
from plans.engine.work import RunningCall, WorkItem

Job = int | RunningCall | None
"""A plan's key, a call to run, or None for a thread that is to end."""


class JobQueue:
    """A queue for `threads` threads: more hints of one plan at a time would help nobody, and are dropped."""

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._queue: SimpleQueue[Job] = SimpleQueue()
        self._counts: dict[int, int] = {}
        self._lock = threading.Lock()

    def put(self, job: Job) -> None:
        """Add a job. With None it takes no lock, so that a signal handler may end the threads."""
        if isinstance(job, int) and not self._is_first(job):
            return
        self._queue.put(job)

    def _is_first(self, plan_pk: int) -> bool:
        with self._lock:
            waiting = self._counts.get(plan_pk, 0)
            self._counts[plan_pk] = min(waiting + 1, self._most)
        return not waiting

    def get(self) -> Job:
        """Wait for a job and take it."""
        return self._taken(self._queue.get())

    def get_nowait(self) -> Job:
        """Take a job. Raises queue.Empty when there is none."""
        return self._taken(self._queue.get_nowait())

    def _taken(self, job: Job) -> Job:
        if isinstance(job, int):
            with self._lock:
                left = self._counts.pop(job) - 1
                if left:
                    self._counts[job] = left
            if left:
                self._queue.put(job)
        return job

    def waiting(self) -> int:
        """Return how many turns of threads wait: every hint of every plan, and calls."""
        with self._lock:
            return self._queue.qsize() + sum(self._counts.values()) - len(self._counts)

    def qsize(self) -> int:
        """Return how many plans, calls and ends wait."""
        return self._queue.qsize()


log = logging.getLogger("toolgate.executor")
QUICK_SECONDS = 0.002
"""A tool that runs shorter than this leaves little to do for a second thread: writers of a plan take turns."""
LONG_SECONDS = 0.05
"""A tool that runs for longer keeps hints from waiting behind it; a thread at shorter ones is free in a moment."""
CUT_OFF_NOTICE = "it is cut off, and repeated or shown to a person when its lease is over"
GRACE_SECONDS = 0.25
"""How far past its deadline a sync handler may be before its thread is written off."""
PATIENT_SECONDS = 0.5
"""How long a thread may wait for a plan's lock before no other follows it there: who has it may have frozen with it."""
STOP_SECONDS = 1.0
"""How long a handler that was told to stop may take for it, before it is left running without its thread's seat."""

MAX_DETACHED = 64
"""Threads that wait for async handlers beside the seats. Each costs some hundred kilobytes and, as it comes back, a
transaction; whoever finds so many waits in its seat."""


@dataclass(slots=True, eq=False)
class WorkerThread:
    """One thread's place, also while it waits aside: what it works on, and until when the handler may run."""

    turn: execution.TimeSlice
    plan_pk: int | None = None
    asked_at: float = float("inf")
    work: WorkItem | None = None
    taken_at: float = float("inf")
    was_slow: bool = False
    ends_at: float = float("inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, work: WorkItem | None) -> None:
        """Note what the thread works on from now on."""
        with self.lock:
            self.work, self.taken_at, self.ends_at = work, float("inf") if work is None else monotonic(), _ends_at(work)
            self.asked_at = float("inf")

    def back(self) -> None:
        """Note that the tool's code has returned: from here on the thread ends its work itself."""
        with self.lock:
            if self.taken_at < float("inf"):
                self.was_slow = self.is_slow_now()
            self.taken_at = self.ends_at = float("inf")

    def stop(self, plan_pks: Collection[int]) -> None:
        """Tell a handler that runs for one of these plans to stop; it has a moment to do so."""
        with self.lock:
            if isinstance(self.work, RunningCall) and self.work.plan.pk in plan_pks and self.taken_at < float("inf"):
                self.work.stop.tell()
                self.ends_at = min(self.ends_at, monotonic() + STOP_SECONDS)

    def is_kept_from(self, plan_pk: int) -> bool:
        """Say whether the thread has been waiting for this plan for longer than any turn of another takes."""
        return self.plan_pk == plan_pk and monotonic() > self.asked_at + PATIENT_SECONDS

    def is_slow_now(self) -> bool:
        """Say whether the thread has been in a tool's code for longer than it takes to write what came of it."""
        return monotonic() > self.taken_at + QUICK_SECONDS

    def is_long(self) -> bool:
        """Say whether the thread has been in a tool's code for so long that nobody knows when it will be free."""
        return monotonic() > self.taken_at + LONG_SECONDS

    def is_detachable(self) -> bool:
        """Say whether the thread runs a call whose handler is on the event loop: nothing else is open in it then."""
        return isinstance(self.work, RunningCall) and self.work.order.target.tool.is_async

    def give_up(self) -> WorkItem | None:
        """Write the thread off when the tool is past its time; return the work to be ended in its place."""
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


class ExecutorPool:
    """A pool of threads in this process, fed by hints."""

    def __init__(self, threads: int) -> None:
        self.owner = f"{socket.gethostname()[:24]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.threads = threads
        self._hints = JobQueue(threads)
        self._taken: dict[int, RunningCall] = {}
        self._seats: set[WorkerThread] = set()
        self._written_off: set[WorkerThread] = set()
        self._detached: set[WorkerThread] = set()
        self._finishing = threading.Semaphore(threads)
        self._stopping = threading.Event()
        self._retired_at = float("inf")
        self._stopped = False
        self._lock = threading.Lock()
        self._delayed_hints: Counter[int] = Counter()

    def start(self) -> None:
        """Start the threads and listen for hints."""
        for _ in range(self.threads):
            self._add_thread()
        hints.register_executor(self)

    def retire(self) -> None:
        """Claim nothing more from now on; may be called in a signal handler, and more than once."""
        if self._stopping.is_set():
            return
        self._retired_at = monotonic()
        self._stopping.set()
        hints.unregister_executor(self)
        for _ in range(self.threads):
            self._hints.put(None)

    def stop(self, seconds: float = 30.0) -> None:
        """Claim nothing more; run what was taken, and wait for what is running, until so long after `retire`.

        What was taken and has not begun by then is handed to other workers. What still runs then is named in the log:
        it ends with the process, and is taken back when its lease expires.
        """
        self.retire()
        while self._all() and monotonic() < self._retired_at + seconds:
            sleep(0.02)
        with self._lock:
            self._stopped = True
        self._hand_back_all()
        for seat in self._all():
            if (work := seat.work) is not None:
                log.error("a step still runs after %g s; %s", seconds, CUT_OFF_NOTICE, extra=log_extra(**ids_of(work)))

    def working_on(self) -> list[int]:
        """Return the keys of the steps whose leases this process must renew."""
        works = [seat.work for seat in self._all() if not seat.turn.abandoned]
        return [*list(self._taken), *(work.step.pk for work in works if work is not None)]

    def hear(self, plan_pk: int) -> None:
        """Take a hint, unless nobody is there to follow it."""
        if self._seats:
            self._hints.put(plan_pk)

    def take(self, run: RunningCall) -> None:
        """Run a call that was started in this executor's name, as soon as a thread is free."""
        with self._lock:
            is_late = self._stopped
            if not is_late:
                self._taken[run.step.pk] = run
                self._hints.put(run)
        if is_late:
            recovery.hand_back(run)

    def plans_at_work(self) -> set[int]:
        """Return the plans of the calls that run here, or are about to, and were not told to stop."""
        works = [*self._taken.copy().values(), *(seat.work for seat in self._all())]
        return {work.plan.pk for work in works if isinstance(work, RunningCall) and not work.stop.told}

    def stop_plans(self, plan_pks: Collection[int]) -> None:
        """Tell the calls of plans that have ended to stop; what was taken and has not begun will not begin."""
        for run in self._taken.copy().values():
            if run.plan.pk in plan_pks:
                run.stop.tell()
        for seat in self._all():
            seat.stop(plan_pks)

    def takes(self) -> bool:
        """Say whether a thread is left that could run something."""
        return bool(self._seats)

    def busy_threads(self) -> int:
        """Return how many threads work on something now."""
        return sum(1 for seat in list(self._seats) if seat.plan_pk is not None)

    def measure(self) -> None:
        """Say what the threads are doing."""
        seats, busy, late = len(self._seats), self.busy_threads(), len(self._late())
        aside = max(0, len(self._detached) + len(self._written_off) - late)
        metrics.set_thread_counts(busy=busy, idle=max(0, seats - busy), aside=aside, late=late)

    def is_full(self) -> bool:
        """Say whether every hint more would wait for a thread that is long in a tool's code: others may be quicker."""
        long = sum(1 for seat in list(self._seats) if seat.is_long())
        return self._hints.waiting() + long >= self.threads

    def late_tools(self) -> list[str]:
        """Return the tools that are past their time and keep threads which were written off."""
        works = [seat.work for seat in self._late()]
        return sorted(work.step.tool for work in works if work is not None)

    def _all(self) -> list[WorkerThread]:
        """Return every seat whose thread this process works with: in its place, or waiting aside."""
        with self._lock:
            return [*self._seats, *self._detached]

    def _late(self) -> list[WorkerThread]:
        """Return the seats of threads that were written off: of sync handlers, and of those waited for aside."""
        with self._lock:
            return [*self._written_off, *(seat for seat in self._detached if seat.turn.abandoned)]

    def _hand_back_all(self) -> None:
        """Let other workers have what was taken in this one's name and has not begun."""
        waiting = [self._hints.get_nowait() for _ in range(self._hints.qsize())]
        for job in waiting:
            if isinstance(job, RunningCall):
                self._taken.pop(job.step.pk, None)
                recovery.hand_back(job)
            elif job is None:
                self._hints.put(None)

    def end_overdue(self) -> None:
        """End the work of tools that are past their time, or were told to stop and have not.

        The threads they keep are replaced, up to twice as many.
        """
        for seat in self._all():
            work = seat.give_up()
            if work is not None:
                log.warning("a tool could not be stopped; its thread is written off", extra=log_extra(**ids_of(work)))
                self._replace(seat)
                execution.abandon(work)
        if not self._seats and not self._stopping.is_set():
            self._hand_back_all()

    def _replace(self, seat: WorkerThread) -> None:
        """Let another thread have the place of one that was written off; one that waits aside has left it."""
        with self._lock:
            if seat not in self._seats:
                return
            self._seats.discard(seat)
            self._written_off.add(seat)
        if not self._add_thread():
            log.error("no more threads are started: tools past their time keep %s", len(self._written_off))

    def _add_thread(self) -> bool:
        """Start a thread where one is missing; False when tools past their time keep as many as there may be."""
        seat = WorkerThread(execution.TimeSlice(self.owner))
        with self._lock:
            if len(self._seats) + len(self._written_off) >= 2 * self.threads:
                return False
            if len(self._seats) < self.threads:
                self._begin(seat)
        return True

    def _begin(self, seat: WorkerThread) -> None:
        """Start the thread of a seat, under the lock. Raises RuntimeError when the machine has no more threads."""
        self._seats.add(seat)
        try:
            threading.Thread(target=self._live, args=[seat], name="toolgate-executor", daemon=True).start()
        except RuntimeError:
            self._seats.discard(seat)
            raise

    @contextmanager
    def _while_detached(self, seat: WorkerThread) -> Iterator[None]:
        """While a thread waits for an async handler, let a new one have its place, and others its connection.

        Coming back it finishes its step, beside no more others than there are places, and leaves.
        """
        if not self._detach(seat):
            yield
            return
        with suppress(Exception):
            connection.close()
        if seat.plan_pk is not None:
            self._hints.put(seat.plan_pk)  # its other steps had no more hints than there were threads
        try:
            yield
        finally:
            seat.back()
            seat.turn.steps_left = 0
            self._finishing.acquire()

    def _detach(self, seat: WorkerThread) -> bool:
        with self._lock:
            if seat not in self._seats or not seat.is_detachable() or len(self._detached) >= MAX_DETACHED:
                return False
            try:
                self._begin(WorkerThread(execution.TimeSlice(self.owner)))
            except RuntimeError:
                return False
            self._seats.discard(seat)
            self._detached.add(seat)
            return True

    def _live(self, seat: WorkerThread) -> None:
        set_wait_context(partial(self._while_detached, seat))
        try:
            while seat in self._seats and not seat.turn.abandoned and (job := self._hints.get()) is not None:
                if isinstance(job, RunningCall):
                    self._stay_with(job.plan.pk, seat, job)
                elif not self._stopping.is_set() and self._needs_help(job):
                    self._stay_with(job, seat)
        finally:
            with self._lock:
                was_aside = seat in self._detached
                for each in (self._seats, self._written_off, self._detached):
                    each.discard(seat)
            if not self._stopping.is_set():
                self._add_thread()  # whatever ended this one, or kept it for so long
            try:
                connection.close()
            finally:
                if was_aside:
                    self._finishing.release()

    def _needs_help(self, plan_pk: int) -> bool:
        """Say whether a hint is to be followed: while a thread writes for its plan it is held back, two would queue up.

        While one has been waiting for the plan no other goes there, or a lost process would keep them all from others.
        """
        if any(seat.is_kept_from(plan_pk) for seat in list(self._seats)):
            return False
        if not self._needs_nobody(plan_pk):
            return True
        self._delay_hints(plan_pk)
        return False

    def _needs_nobody(self, plan_pk: int) -> bool:
        """Say whether the threads at this plan keep its row busy: none waits long for it, or for a tool."""
        here = [seat for seat in list(self._seats) if seat.plan_pk == plan_pk]
        waits = any(seat.was_slow or seat.is_slow_now() or seat.is_kept_from(plan_pk) for seat in here)
        return bool(here) and not waits

    def _delay_hints(self, plan_pk: int) -> None:
        """Keep a hint, and those of its plan that come meanwhile, until a thread is of use there or anything waits."""
        with self._lock:
            self._delayed_hints[plan_pk] += 1
            if self._delayed_hints[plan_pk] > 1:
                return  # whoever holds the first one back brings this one too
        sleep(QUICK_SECONDS)  # in any case, or two that hold back would pass their hints to each other without rest
        while self._needs_nobody(plan_pk) and not self._hints.waiting():
            sleep(QUICK_SECONDS)
        with self._lock:
            count = self._delayed_hints.pop(plan_pk)
        for _ in range(min(count, self.threads)):
            self._hints.put(plan_pk)

    def _stay_with(self, plan_pk: int, seat: WorkerThread, work: WorkItem | None = None) -> None:
        """Work on one plan for one turn, from what was taken on. What goes wrong here leaves a lease that expires."""
        seat.plan_pk, seat.asked_at = plan_pk, monotonic() if work is None else float("inf")
        seat.was_slow = False
        try:
            seat.turn = execution.TimeSlice(self.owner, stopping=self._stopping, back=seat.back)
            work = work or execution.claim_work(plan_pk, owner=self.owner, turn=seat.turn)
            while work is not None:
                seat.take(work)
                self._taken.pop(work.step.pk, None)
                if self._stopping.is_set() and not isinstance(work, RunningCall):
                    recovery.release_claim(work)
                    break
                work = execution.advance(work, seat.turn)
        except Conflict:
            log.info("someone else got there first", extra=log_extra(plan_key=plan_pk))
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log.warning("a step was dropped; its lease will expire", extra=log_extra(plan_key=plan_pk))
            log_unexpected(error)
            connection.close()
        finally:
            seat.take(None)
            seat.plan_pk = None
