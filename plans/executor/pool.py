"""The thread pool that claims, runs and finishes steps; each thread has its own database connection."""

import logging
import os
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep

from django.db import connection

from catalog.core.tracing import log_extra
from catalog.core.transactions import log_unexpected
from catalog.dispatch.runner import set_wait_context
from catalog.errors import Conflict
from plans import metrics
from plans.engine import hints, loop, recovery
from plans.engine.reports import ids_of
from plans.engine.running_first import may_begin, run_handler
from plans.engine.work import RunningCall, UnstoredCall, WorkItem
from plans.executor.job_queue import JobQueue
from plans.executor.worker_thread import QUICK_SECONDS, WorkerThread
from plans.store.transactions import retry_while_database_is_away

log = logging.getLogger("toolgate.executor")
CUT_OFF_NOTICE = "it is cut off, and repeated or shown to a person when its lease is over"
MAX_DETACHED = 64
"""Maximum of detached threads waiting for async handlers. Each costs some hundred kilobytes; further threads wait
without being replaced."""


class ExecutorPool:
    def __init__(self, threads: int) -> None:
        self.owner = f"{socket.gethostname()[:24]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.threads = threads
        self._hints = JobQueue(threads)
        self._taken: dict[int, RunningCall] = {}
        self._active: set[WorkerThread] = set()
        self._abandoned: set[WorkerThread] = set()
        self._detached: set[WorkerThread] = set()
        self._finishing = threading.Semaphore(threads)
        self._stopping = threading.Event()
        self._retired_at = float("inf")
        self._stopped = False
        self._lock = threading.Lock()
        self._delayed_hints: Counter[int] = Counter()

    def start(self) -> None:
        for _ in range(self.threads):
            self._add_thread()
        hints.register_executor(self)

    def retire(self) -> None:
        """Claim nothing more from now on; may be called in a signal handler and more than once."""
        if self._stopping.is_set():
            return
        self._retired_at = monotonic()
        self._stopping.set()
        hints.unregister_executor(self)
        for _ in range(self.threads):
            self._hints.put(None)

    def stop(self, seconds: float = 30.0) -> None:
        """Claim nothing more, run queued calls and wait for running ones until `seconds` after `retire`.

        Calls that have not begun by then are released for other workers. Calls still running are logged; they end with
        the process and are taken back when their lease expires.
        """
        self.retire()
        while self._all() and monotonic() < self._retired_at + seconds:
            sleep(0.02)
        with self._lock:
            self._stopped = True
        self._hand_back_all()
        for worker in self._all():
            if (work := worker.work) is not None:
                log.error("a step still runs after %g s; %s", seconds, CUT_OFF_NOTICE, extra=log_extra(**ids_of(work)))

    def working_on(self) -> list[int]:
        """Return the keys of the steps whose leases this process must renew."""
        works = [worker.work for worker in self._all() if not worker.time_slice.abandoned]
        return [*list(self._taken), *(work.step.pk for work in works if work is not None and work.plan.pk)]

    def add_hint(self, plan_pk: int) -> None:
        """Queue a hint, unless no thread is left."""
        if self._active:
            self._hints.put(plan_pk)

    def run_call(self, running_call: RunningCall) -> None:
        with self._lock:
            is_late = self._stopped
            if not is_late:
                self._taken[running_call.step.pk] = running_call
                self._hints.put(running_call)
        if is_late:
            recovery.hand_back(running_call)

    def run_first(self, unstored_call: UnstoredCall) -> bool:
        """Queue a call that is not stored yet if a thread is idle; return whether it was queued."""
        is_idle = not self._hints.qsize() and self.busy_threads() < len(self._active) and not self._stopping.is_set()
        if is_idle:
            self._hints.put(unstored_call)
        return is_idle

    def calls_at_work(self) -> list[RunningCall]:
        """Return the running and queued calls that were not asked to stop."""
        works = [*self._taken.copy().values(), *(worker.work for worker in self._all())]
        return [work for work in works if isinstance(work, RunningCall) and not work.stop.is_set]

    def stop_plans(self, plan_pks: Collection[int]) -> None:
        """Ask the calls of ended plans to stop."""
        self.stop_calls([running_call for running_call in self.calls_at_work() if running_call.plan.pk in plan_pks])

    def stop_calls(self, running_calls: Collection[RunningCall]) -> None:
        """Ask these calls to stop; queued calls will not begin."""
        attempts = {(each.step.pk, each.step.attempt) for each in running_calls}
        for run in self._taken.copy().values():
            if (run.step.pk, run.step.attempt) in attempts:
                run.stop.set()
        for worker in self._all():
            worker.stop(attempts)

    def has_threads(self) -> bool:
        return bool(self._active)

    def busy_threads(self) -> int:
        return sum(1 for worker in list(self._active) if worker.plan_pk is not None)

    def measure(self) -> None:
        active, busy, late = len(self._active), self.busy_threads(), len(self._late())
        detached = max(0, len(self._detached) + len(self._abandoned) - late)
        metrics.set_thread_counts(busy=busy, idle=max(0, active - busy), aside=detached, late=late)

    def is_full(self) -> bool:
        """Return whether another hint would wait behind long-running tools, so that another process may be faster."""
        long = sum(1 for worker in list(self._active) if worker.is_long())
        return self._hints.waiting() + long >= self.threads

    def late_tools(self) -> list[str]:
        works = [worker.work for worker in self._late()]
        return sorted(work.step.tool for work in works if work is not None)

    def _all(self) -> list[WorkerThread]:
        with self._lock:
            return [*self._active, *self._detached]

    def _late(self) -> list[WorkerThread]:
        """Return the abandoned threads, both those stuck in a sync handler and detached ones."""
        with self._lock:
            return [*self._abandoned, *(worker for worker in self._detached if worker.time_slice.abandoned)]

    def _hand_back_all(self) -> None:
        waiting = [self._hints.get_nowait() for _ in range(self._hints.qsize())]
        for job in waiting:
            if isinstance(job, RunningCall):
                self._taken.pop(job.step.pk, None)
                recovery.hand_back(job)
            elif job is None:
                self._hints.put(None)

    def end_overdue(self) -> None:
        """End the work of tools that are past their deadline or did not stop when asked.

        Their threads are replaced, up to twice the configured number of threads.
        """
        for worker in self._all():
            work = worker.abandon_if_overdue()
            if work is not None:
                log.warning("a tool could not be stopped; its thread is abandoned", extra=log_extra(**ids_of(work)))
                with self._lock:
                    was_active = worker in self._active  # a detached thread was replaced already
                    if was_active:
                        self._active.discard(worker)
                        self._abandoned.add(worker)
                if was_active and not self._add_thread():
                    log.error("no more threads are started: tools past their time keep %s", len(self._abandoned))
                if work.plan.pk:  # otherwise it could not be stored
                    loop.abandon(work)
        if not self._active and not self._stopping.is_set():
            self._hand_back_all()

    def _add_thread(self) -> bool:
        """Start a thread if one is missing; return False if abandoned threads have reached the limit."""
        worker = WorkerThread(loop.TimeSlice(self.owner))
        with self._lock:
            if len(self._active) + len(self._abandoned) >= 2 * self.threads:
                return False
            if len(self._active) < self.threads:
                self._begin(worker)
        return True

    def _begin(self, worker: WorkerThread) -> None:
        """Start a thread; the lock must be held. Raises RuntimeError if the machine cannot start more threads."""
        self._active.add(worker)
        try:
            threading.Thread(target=self._live, args=[worker], name="toolgate-executor", daemon=True).start()
        except RuntimeError:
            self._active.discard(worker)
            raise

    @contextmanager
    def _while_detached(self, worker: WorkerThread) -> Iterator[None]:
        """Detach the thread while it waits for an async handler: close its connection and start a thread in its place.

        Afterwards the thread finishes its step and ends. A semaphore limits how many threads do this at once.
        """
        with self._lock:
            is_full = len(self._detached) >= MAX_DETACHED
            is_detached = worker in self._active and worker.is_detachable() and not is_full
            if is_detached:
                try:
                    self._begin(WorkerThread(loop.TimeSlice(self.owner)))
                except RuntimeError:
                    is_detached = False
                else:
                    self._active.discard(worker)
                    self._detached.add(worker)
        if not is_detached:
            yield
            return
        with suppress(Exception):
            connection.close()
        if worker.plan_pk is not None:
            self._hints.put(worker.plan_pk)  # the new thread needs a hint: there were no more hints than threads
        try:
            yield
        finally:
            worker.leave_tool()
            worker.time_slice.steps_left = 0
            self._finishing.acquire()

    def _live(self, worker: WorkerThread) -> None:
        set_wait_context(partial(self._while_detached, worker))
        try:
            while worker in self._active and not worker.time_slice.abandoned and (job := self._hints.get()) is not None:
                if isinstance(job, UnstoredCall):
                    self._run_first(worker, job)
                elif isinstance(job, RunningCall):
                    self._stay_with(job.plan.pk, worker, job)
                elif not self._stopping.is_set() and self._needs_help(job):
                    self._stay_with(job, worker)
        finally:
            with self._lock:
                was_detached = worker in self._detached
                for each in (self._active, self._abandoned, self._detached):
                    each.discard(worker)
            if not self._stopping.is_set():
                self._add_thread()  # replaces this thread, however it ended
            try:
                connection.close()
            finally:
                if was_detached:
                    self._finishing.release()

    def _needs_help(self, plan_pk: int) -> bool:
        """Return whether this thread should work on the plan now; if not, delay the hint about it.

        While a thread waits long for the plan's lock, no other thread joins it: a frozen process must not block all
        threads. A delayed hint is queued again when another thread can help, or when other work is queued.
        """
        if any(worker.is_kept_from(plan_pk) for worker in list(self._active)):
            return False
        if not self._needs_nobody(plan_pk):
            return True
        with self._lock:
            self._delayed_hints[plan_pk] += 1
            if self._delayed_hints[plan_pk] > 1:
                return False  # the thread that delays the first hint requeues this one too
        sleep(QUICK_SECONDS)  # always, or two delaying threads would pass hints to each other in a busy loop
        while self._needs_nobody(plan_pk) and not self._hints.waiting():
            sleep(QUICK_SECONDS)
        with self._lock:
            count = self._delayed_hints.pop(plan_pk)
        for _ in range(min(count, self.threads)):
            self._hints.put(plan_pk)
        return False

    def _needs_nobody(self, plan_pk: int) -> bool:
        """Return whether a further thread is of no use: one thread writes to the plan, none is slow or waits long."""
        here = [worker for worker in list(self._active) if worker.plan_pk == plan_pk]
        waits = any(worker.was_slow or worker.is_slow_now() or worker.is_kept_from(plan_pk) for worker in here)
        return bool(here) and not waits

    def _run_first(self, worker: WorkerThread, unstored_call: UnstoredCall) -> None:
        """Run a call that is not stored yet; end it here if it was stored meanwhile. It claims no other step."""
        time_slice = loop.TimeSlice(self.owner, stopping=self._stopping, back=worker.leave_tool, steps_left=0)
        worker.begin_slice(unstored_call.running_call.plan.pk, time_slice, claims=False)
        try:
            outcome, stored = unstored_call.run(worker, may_begin, run_handler), unstored_call.stored
            worker.leave_tool()
            if outcome is not None and stored is not None:
                retry_while_database_is_away(partial(loop.finish_and_claim_next, stored, outcome, time_slice))
        except Conflict:
            log.info("another worker was first", extra=log_extra(**ids_of(unstored_call.running_call)))
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log_unexpected(error)
            connection.close()
        finally:
            worker.end_slice()

    def _stay_with(self, plan_pk: int, worker: WorkerThread, work: WorkItem | None = None) -> None:
        """Work on one plan for one time slice, beginning with `work`. On an error, log it and let the lease expire."""
        time_slice = loop.TimeSlice(self.owner, stopping=self._stopping, back=worker.leave_tool)
        worker.begin_slice(plan_pk, time_slice, claims=work is None)
        try:
            work = work or loop.claim_work(plan_pk, owner=self.owner, time_slice=time_slice)
            while work is not None:
                worker.begin_work(work)
                self._taken.pop(work.step.pk, None)
                if self._stopping.is_set() and not isinstance(work, RunningCall):
                    recovery.release_claim(work)
                    break
                work = loop.advance(work, time_slice)
        except Conflict:
            log.info("another worker was first", extra=log_extra(plan_key=plan_pk))
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log.warning("a step was dropped; its lease will expire", extra=log_extra(plan_key=plan_pk))
            log_unexpected(error)
            connection.close()
        finally:
            worker.end_slice()
