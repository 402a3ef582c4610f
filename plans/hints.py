"""What waits for an executor's threads: hints of plans, and calls that were started in its name. Plans take turns.

However many hints a plan has, it stands in the queue once, and goes to its end when one was taken: a wide plan keeps
the others waiting for one turn of one thread, not for all of its hints.
"""

import threading
from queue import SimpleQueue

from plans.engine.work import Run

Job = int | Run | None
"""A plan's key, a call to run, or None for a thread that is to end."""


class Hints:
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
