"""`fanout_sockets_ms`, `socket_kib`: one event to the pages of 500 watchers of a plan of 500 steps, and their memory.

A step is skipped over REST; the clock runs from the time of the event, read in its transaction before the commit, until
a watcher has received the message with it. Server and watchers share the machine.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client as Visitor
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from benchmarks.client import Client
from benchmarks.ground import Served, person, prepare, serving, step, token_for
from plans.actions.create import create_plan
from plans.models import Event, Plan
from plans.spec import PlanDocument
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction

WATCHERS = 500
PEOPLE = 20
STEPS, EVENTS = 500, 5000
ROUNDS = 10
APART_SECONDS = 1.5
AT_ONCE = 25


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each watcher and event."""
    return _watch(runs * ROUNDS)[0]


def memory(runs: int) -> list[float]:
    """Return the KiB by which the server's resident memory grows with each socket."""
    return [_watch(0)[1] for _ in range(runs)]


def _watch(events: int) -> tuple[list[float], float]:
    token = token_for(prepare(), "plans:write")
    plan = _plan(Requester(person("operator"), via="shell"))
    sessions = [_session_of(number) for number in range(PEOPLE)]
    with serving() as served:
        return asyncio.run(_fan_out(served, plan, sessions, token, events))


def _plan(by: Requester) -> Plan:
    """Create a plan that waits for a person at its first step, which all others need, with so many events."""
    steps = [step(1, tool="bench_moment"), *(step(number, 1) for number in range(2, STEPS + 1))]
    plan = create_plan(PlanDocument.model_validate({"goal": "Measure", "steps": steps}), by=by)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        for number in range(EVENTS - Event.objects.filter(plan=plan).count()):
            tx.record("memory.written", number % STEPS + 1, key=f"key_{number}")
    return plan


def _session_of(number: int) -> str:
    user, _ = User.objects.get_or_create(username=f"bench-watcher-{number}")
    user.groups.set(Group.objects.filter(name="viewer"))
    visitor = Visitor()
    visitor.force_login(user)
    return visitor.cookies[settings.SESSION_COOKIE_NAME].value


async def _fan_out(
    served: Served, plan: Plan, sessions: list[str], token: str, events: int
) -> tuple[list[float], float]:
    last_seq = (await Plan.objects.aget(pk=plan.pk)).last_seq
    async with _sockets(served, plan, last_seq, sessions[:1]):
        await asyncio.sleep(APART_SECONDS)  # what a first watcher loads is there for all
        before = served.rss_mib()
    found: list[float] = []
    async with _sockets(served, plan, last_seq, sessions * (WATCHERS // len(sessions))) as sockets:
        await asyncio.sleep(2 * APART_SECONDS)
        kib = (served.rss_mib() - before) * 1024 / WATCHERS
        for number in range(2, events + 2):
            async with asyncio.TaskGroup() as tasks:
                heard = [tasks.create_task(_hear(socket, f'id=\\"s{number}\\"')) for socket in sockets]
                path = f"plans/{plan.public_id}/steps/{number}/skip/"
                client = Client(served.port, token)  # a connection kept from the event before may have been closed
                await asyncio.to_thread(client.post, path, {"reason": "Measured."}, 200)
            moments = [each.result() for each in heard]
            event = await Event.objects.aget(plan=plan, step_id=number, type="step.skipped")
            found += [(moment - event.at.timestamp()) * 1000 for moment in moments]
            await asyncio.sleep(APART_SECONDS)
    return found, kib


@asynccontextmanager
async def _sockets(
    served: Served, plan: Plan, last_seq: int, sessions: list[str]
) -> AsyncIterator[list[ClientConnection]]:
    url = f"ws://127.0.0.1:{served.port}/ws/pages/plans/{plan.public_id}/?after={last_seq}"
    sockets: list[ClientConnection] = []
    try:
        for begin in range(0, len(sessions), AT_ONCE):
            opening = [
                connect(
                    url,
                    origin=Origin(f"http://127.0.0.1:{served.port}"),
                    additional_headers={"Cookie": f"{settings.SESSION_COOKIE_NAME}={session}"},
                    compression=None,
                    max_size=None,
                    open_timeout=60,
                )
                for session in sessions[begin : begin + AT_ONCE]
            ]
            sockets += await asyncio.gather(*opening)
        yield sockets
    finally:
        await asyncio.gather(*(socket.close() for socket in sockets))


async def _hear(socket: ClientConnection, wanted: str) -> float:
    """Return the time at which the message with a text arrived."""
    async for message in socket:
        moment = time()
        if wanted in str(message):
            return moment
    raise RuntimeError("The server closed a socket.")
