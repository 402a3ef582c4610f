"""Kill loops: a client works while its processes are killed, frozen, stopped and started again."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from plans.models import Plan, Step
from plans.states import WaitingFor
from tests.builders import step
from tests.chaos.client import Client
from tests.chaos.proxy import Proxy
from tests.chaos.serving import Serving
from tests.chaos.verdicts import unsettled

QUIET_SECONDS = 60.0
"""The promise on a machine without other load; a busy one has PATIENCE_SECONDS before plans count as stuck."""
PATIENCE_SECONDS = 3 * QUIET_SECONDS
REST_SECONDS = 300.0
MOST_OPEN = 5
UP_SECONDS = 180.0
FROZEN_SECONDS = (3.0, 10.0)
STARTING_SECONDS = 4.0
"""About the time that a process takes to start."""
TOOLS = ("safe_work", "cautious_work", "dangerous_work", "safe_work")


@dataclass(slots=True)
class Killer:
    """Kills one process after the other, on a thread of its own, until `kills` is reached."""

    fleet: Sequence[Serving]
    chance: random.Random
    kills: int
    last_at: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)
    pause: threading.Event = field(default_factory=threading.Event)
    """Set at the end of the test, also of a failed one: ends all waiting and killing."""

    def run(self) -> None:
        """Kill, start again, and so on."""
        try:
            while self.done["killed"] < self.kills and not self.pause.is_set():
                victim = self.chance.choice(self.fleet)
                self._let_it_work(victim)
                self._end(victim)
        finally:
            self.last_at = monotonic()
            self.over.set()

    def _let_it_work(self, victim: Serving) -> None:
        """Wait until it is up and a moment longer, or sometimes only part of its start."""
        if self.chance.random() < 0.15:
            self.pause.wait(self.chance.uniform(0.0, STARTING_SECONDS / 2))
            return
        ends = monotonic() + UP_SECONDS
        while monotonic() < ends and not is_up(victim) and not self.pause.wait(0.05):
            pass
        self.pause.wait(self.chance.uniform(0.05, 1.2))

    def _end(self, victim: Serving) -> None:
        lot = self.chance.random()
        if lot < 0.05:
            victim.freeze(frozen=True)
            self.pause.wait(self.chance.uniform(*FROZEN_SECONDS))
            victim.freeze(frozen=False)
            self.done["frozen"] += 1
            return
        if lot < 0.12:
            self.done["told to stop" if victim.end(signal.SIGTERM) else "stopped too slowly"] += 1
        else:
            victim.kill()
            self.done["killed"] += 1
        victim.start()


def is_up(process: Serving) -> bool:
    """Say whether a process serves, or, for a worker, whether it executes."""
    if process.command[0] == "serve":
        return process.is_alive() and process.url() is not None
    return process.is_alive() and "Toolgate executes" in process.log()


def places(fleet: Sequence[Serving]) -> list[str]:
    """Return the URLs of the processes that serve at the moment."""
    return [url for each in fleet if each.is_alive() and (url := each.url())]


def a_plan(chance: random.Random) -> list[dict[str, Any]]:
    """Return the steps of a small plan of safe, cautious and dangerous work, in chains and side by side."""
    steps = []
    for number in range(1, chance.randrange(2, 6)):
        needs = [chance.randrange(1, number)] if number > 1 and chance.random() < 0.7 else []
        parameters = {"seconds": round(chance.choice((0.0, 0.02, 0.1, 0.3, 0.6)), 2)}
        steps.append(step(number, chance.choice(TOOLS), parameters=parameters, dependencies=needs))
    return steps


def work_while(client: Client, killer: Killer, *, plans: int) -> float:
    """Create, approve and settle while the killer runs; return the seconds from the last kill until all was quiet.

    Afterwards the client continues until its plans exist and nothing waits for approval, or until REST_SECONDS.
    """
    hunter = threading.Thread(target=killer.run)
    hunter.start()
    try:
        while not killer.over.is_set():
            if Plan.objects.count() < plans * (killer.done["killed"] + 1) // killer.kills:
                _create_one(client)
            _tend(client, killer.fleet)
    finally:
        if not killer.over.is_set():
            killer.pause.set()
        hunter.join()
    quiet = until_settled(since=killer.last_at)
    ends = monotonic() + REST_SECONDS
    while monotonic() < ends and (client.open or Plan.objects.count() < plans or _is_held()):
        if Plan.objects.count() < plans:
            _create_one(client)
        _tend(client, killer.fleet, settle=False)
    until_settled(since=monotonic())
    return quiet


def _create_one(client: Client) -> None:
    """Create a plan under a new key, unless MOST_OPEN requests are unanswered."""
    if len(client.open) < MOST_OPEN:
        client.create(f"plan-{client.history.count('invoke')}", a_plan(client.chance))


def until_settled(*, since: float) -> float:
    """Wait until every plan has ended or waits for a known reason; return the seconds since `since`.

    Return after PATIENCE_SECONDS in any case; the verdict then lists the plans in limbo.
    """
    while monotonic() - since < PATIENCE_SECONDS and unsettled():
        threading.Event().wait(0.1)
    return monotonic() - since


@dataclass(slots=True)
class Faults:
    """Faults at named points, one after the other: in a process, or a cut by the proxy."""

    fleet: Sequence[Serving]
    wanted: list[tuple[str, str]]
    seed: int
    effects: Path | None = None
    action: str = ""
    proxy: Proxy | None = None

    def arm(self, point: str, moment: str) -> None:
        """Arm a fault, and start processes that have ended."""
        if self.proxy is not None:
            self.proxy.order.point, self.proxy.order.moment = point, moment
        elif self.effects is not None:
            ready = self.effects / "arm.new"
            ready.write_text(f"{point}:{moment}:{self.action}")
            ready.rename(self.effects / "arm")
        revive(self.fleet)

    def wait_for_it(self, client: Client, once_more: Callable[[], object]) -> None:
        """Act as client until the fault has happened and all processes are alive again; sometimes add a plan."""
        looks, ends = 0, monotonic() + UP_SECONDS
        while not self._has_happened():
            assert monotonic() < ends, "the point was never reached"
            looks += 1
            if looks % 20 == 0 and places(self.fleet):
                once_more()
            _tend(client, self.fleet)
            revive(self.fleet)
        revive(self.fleet)

    def _has_happened(self) -> bool:
        if self.proxy is not None:
            return not self.proxy.order.point
        return self.effects is not None and not (self.effects / "arm").exists()


def revive(fleet: Sequence[Serving]) -> None:
    """Start processes that have ended."""
    for process in fleet:
        if not process.is_alive():
            process.start()


def until_quiet(client: Client, fleet: Sequence[Serving]) -> float:
    """Act as client and approver until no plan moves by itself any more; return the seconds that it took."""
    began = monotonic()
    while monotonic() - began < PATIENCE_SECONDS and (client.open or unsettled() or _is_held()):
        _tend(client, fleet, settle=False)
        # A process may exit a moment after its fault was seen.
        revive(fleet)
    until_settled(since=monotonic())
    return monotonic() - began


def _is_held() -> bool:
    return Step.objects.filter(waiting_for=WaitingFor.APPROVAL).exists()


def _tend(client: Client, fleet: Sequence[Serving], *, settle: bool = True) -> None:
    """Do one turn of the client and of the people."""
    client.try_again()
    client.approve_what_waits()
    if settle:
        _settle_some(client, fleet)
    threading.Event().wait(0.05)


def _settle_some(client: Client, fleet: Sequence[Serving]) -> None:
    """Settle half of the unknown outcomes by what the sink shows."""
    marks = fleet[0].marks()
    waiting = Step.objects.filter(waiting_for=WaitingFor.OUTCOME).select_related("call", "plan")
    for each in waiting:
        if each.call is not None and each.pk % 2:
            ref = each.call.public_id
            verdict = "happened" if marks[ref, "ended"] else "did_not_happen"
            verdict = verdict if marks[ref, "began"] else "request_again"
            client.settle(each.plan.public_id, each.step_id, ref, verdict)
