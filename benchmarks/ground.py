"""Setup of the measurements: a migrated database with people and tools, an executor, a real server."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from benchmarks.figures import ROOT
from catalog.access.tokens import create_token
from catalog.inventory.sync import sync_tools
from plans.actions.create import create_plan, start_plan
from plans.executor.lifecycle import run_executor, tune_garbage_collector
from plans.models import Plan
from plans.spec import PlanDocument
from plans.states import PlanStatus
from plans.store import transactions
from plans.store.requesters import Requester

SECONDS = 120.0


def prepare() -> User:
    """Migrate the database and return an operator."""
    call_command("migrate", verbosity=0)
    sync_tools()
    return person("operator")


def person(role: str, name: str = "") -> User:
    """Return a user with this role, named after it unless told otherwise; created on first use."""
    user, _ = User.objects.get_or_create(username=f"bench-{name or role}")
    user.groups.set(Group.objects.filter(name=role))
    return user


def token_for(user: User, *scopes: str) -> str:
    """Return the text of a new personal token."""
    return create_token(user=user, kind="personal", scopes=scopes)[1]


def session_of(user: User) -> str:
    """Sign a user in; return the key of the session."""
    visitor = Client()
    visitor.force_login(user)
    return visitor.cookies[settings.SESSION_COOKIE_NAME].value


def step(step_id: int, *needs: int, tool: str = "bench_noop") -> dict[str, Any]:
    """Return the document of a step that does nothing."""
    return {
        "step_id": step_id,
        "description": f"Step {step_id}",
        "tool": tool,
        "parameters": {"number": step_id},
        "dependencies": list(needs),
    }


class Watch:
    """Waits in this process for one event of a plan to be committed."""

    def __init__(self) -> None:
        self._wanted = ("", 0)
        self._reached = threading.Event()
        transactions.register_listener(self._hear)

    def _hear(self, plan_ref: str, last_seq: int) -> None:
        wanted_ref, wanted_seq = self._wanted
        if plan_ref == wanted_ref and last_seq >= wanted_seq:
            self._reached.set()

    def look_out(self, plan: Plan, seq: int) -> None:
        """Set the event to wait for; must precede the action that causes it."""
        self._reached.clear()
        self._wanted = (plan.public_id, seq)

    def wait(self) -> None:
        """Return once that event is committed, without queries. Raises TimeoutError."""
        if not self._reached.wait(SECONDS):
            raise TimeoutError("The plan did not get as far as event {} of {}.".format(*reversed(self._wanted)))


def ms_per_step(steps: list[dict[str, Any]], runs: int) -> list[float]:
    """Run a plan of these steps several times on a warm executor; return the milliseconds per step of each run."""
    with plan_runs(steps) as run:
        return [run() for _ in range(runs)]


@contextmanager
def plan_runs(steps: list[dict[str, Any]]) -> Iterator[Callable[[], float]]:
    """Yield a function that runs a plan of these steps once and returns its milliseconds per step.

    A run is timed from the request to start the plan until the commit of its end. An extra first run warms up and
    counts the plan's events.
    """
    by = Requester(prepare(), via="shell")
    document = PlanDocument.model_validate({"goal": "Measure", "steps": steps, "start": False})
    watch = Watch()
    with run_executor():
        last_seq = _count_events(create_plan(document, by=by), by)
        tune_garbage_collector()
        yield lambda: _timed(create_plan(document, by=by), by, watch, last_seq) / len(steps)


def _count_events(plan: Plan, by: Requester) -> int:
    start_plan(plan, by=by)
    ends = monotonic() + SECONDS
    while plan.status != PlanStatus.COMPLETED:
        if monotonic() > ends:
            raise TimeoutError(f"{plan} did not complete.")
        threading.Event().wait(0.1)
        plan.refresh_from_db()
    return plan.last_seq


def _timed(plan: Plan, by: Requester, watch: Watch, last_seq: int) -> float:
    watch.look_out(plan, last_seq)
    started = perf_counter()
    start_plan(plan, by=by)
    watch.wait()
    milliseconds = (perf_counter() - started) * 1000
    plan.refresh_from_db()
    if plan.status != PlanStatus.COMPLETED:
        raise RuntimeError(f"{plan} is {plan.status}.")
    return milliseconds


@dataclass(frozen=True, slots=True)
class Served:
    """A server process: its port and its use of resources."""

    port: int
    pid: int

    def rss_mib(self) -> float:
        """Return its resident memory in MiB."""
        return int(self._status("VmRSS").split()[0]) / 1024

    def processor_ms(self) -> float:
        """Return the processor time that it has used, in milliseconds; the system counts in hundredths of a second."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def threads(self) -> int:
        """Return its number of threads."""
        return int(self._status("Threads"))

    def _status(self, name: str) -> str:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


@contextmanager
def serving() -> Iterator[Served]:
    """Run `manage.py serve` in another process until the body is left."""
    command = [sys.executable, "manage.py", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
        try:
            said = server.stdout.readline() if server.stdout else ""
            address = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
            if address is None:
                raise RuntimeError(f"The server did not say where it serves: {said!r}")
            yield Served(int(address[1]), server.pid)
        finally:
            server.terminate()
