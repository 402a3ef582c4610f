"""Job queue of an executor: plans that may have ready steps, and calls already started for this process.

Plans are served round-robin: a plan is in the queue once, however many hints it has, and moves to the end when one of
its hints is taken.
"""

import threading
from queue import SimpleQueue

from plans.engine.work import RunningCall, UnstoredCall

Job = int | RunningCall | UnstoredCall | None
"""A plan's key, a call to run, or None to end a thread."""


class JobQueue:
    """Round-robin queue of plans and calls; keeps at most `threads` hints per plan and drops the rest."""

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._queue: SimpleQueue[Job] = SimpleQueue()
        self._counts: dict[int, int] = {}
        self._lock = threading.Lock()

    def put(self, job: Job) -> None:
        """Add a job. None, which stops a thread, is added without a lock, so that signal handlers may add it."""
        if isinstance(job, int):
            with self._lock:
                waiting = self._counts.get(job, 0)
                self._counts[job] = min(waiting + 1, self._most)
            if waiting:
                return
        self._queue.put(job)

    def get(self) -> Job:
        return self._taken(self._queue.get())

    def get_nowait(self) -> Job:
        """Take a job. Raises queue.Empty if there is none."""
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
        """Return the number of waiting jobs, counting every hint of a plan."""
        with self._lock:
            return self._queue.qsize() + sum(self._counts.values()) - len(self._counts)

    def qsize(self) -> int:
        """Return the number of entries in the queue, counting each plan once."""
        return self._queue.qsize()
