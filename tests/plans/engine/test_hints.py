"""Hints over Procrastinate: part of the transaction, bounded in number, and received by a real worker."""

import asyncio

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from procrastinate import App
from procrastinate.exceptions import ConnectorException

from plans.engine import hints as engine_hints
from plans.executor.procrastinate import listen_for_hints
from plans.models import Plan
from tests.builders import make_plan, step
from tests.plans.socket_clients import apart

pytestmark = pytest.mark.service


@pytest.fixture(autouse=True)
def in_a_cluster(transactional_db: None, settings: object) -> None:
    """Send hints as in a cluster, beginning with none."""
    settings.TOOLGATE_EXECUTOR = "procrastinate"  # type: ignore[attr-defined]
    run("DELETE FROM procrastinate_jobs")


def run(statement: str) -> None:
    """Execute one statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def hints() -> list[tuple[str, str]]:
    """Return status and payload of the stored hints."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT status::text, args::text FROM procrastinate_jobs ORDER BY id")
        return list(cursor.fetchall())


def test_hint_is_committed_with_its_plan(catalog: None, ada: User) -> None:
    """It contains only the plan's key."""
    plan = make_plan(ada, step(1))
    assert hints() == [("todo", f'{{"plan_pk": {plan.pk}}}')]


def test_hint_is_rolled_back_with_its_plan() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        engine_hints.hint(1, 3)
        raise ZeroDivisionError
    assert hints() == []


def test_hints_of_a_plan_are_limited(catalog: None, ada: User) -> None:
    """A thousand unheard hints become eight, and none aborts its transaction."""
    for _ in range(10):
        with transaction.atomic():
            for _ in range(100):
                engine_hints.hint(1, 50)
            plan = make_plan(ada, step(1))
        assert Plan.objects.filter(pk=plan.pk).exists()
    assert len(hints()) == engine_hints.HINTS_AT_MOST + 10


def test_concurrent_hints_at_one_plan_do_not_fail() -> None:
    """The second transaction waits for the first."""

    def hint_elsewhere() -> None:
        with transaction.atomic():
            engine_hints.hint(7, 8)

    async def both() -> None:
        await asyncio.gather(*(apart(hint_elsewhere) for _ in range(8)))

    asyncio.run(both())
    assert len(hints()) == engine_hints.HINTS_AT_MOST


def test_no_hint_without_ready_steps() -> None:
    engine_hints.hint(1, 0)
    engine_hints.hint(1, -1)
    assert hints() == []


async def test_worker_receives_each_hint_once() -> None:
    """By notification, in a real Procrastinate worker; no jobs remain."""
    heard: asyncio.Queue[int] = asyncio.Queue()
    listening = asyncio.create_task(listen_for_hints(heard.put))
    for plan_pk in (11, 12, 13):
        await apart(engine_hints.hint, plan_pk)
    async with asyncio.timeout(60):
        assert {await heard.get() for _ in range(3)} == {11, 12, 13}
        while await apart(hints):
            await asyncio.sleep(0.02)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert heard.empty()


async def test_worker_reconnects_after_its_sessions_ended() -> None:
    """As after a restart of the database."""
    heard: asyncio.Queue[int] = asyncio.Queue()
    listening = asyncio.create_task(listen_for_hints(heard.put))
    for plan_pk in (21, 22):
        await apart(engine_hints.hint, plan_pk)
        async with asyncio.timeout(60):
            assert await heard.get() == plan_pk
        await apart(run, END_LISTENERS)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_worker_stops_if_an_error_occurs_while_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Procrastinate then raises only the error; the worker must not start listening again."""
    begun = asyncio.Event()

    async def work(_: App, **options: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectorException

    monkeypatch.setattr(App, "run_worker_async", work)
    listening = asyncio.create_task(listen_for_hints(asyncio.Queue[int]().put))
    await begun.wait()
    listening.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([listening])
    assert listening.done()


END_LISTENERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND query ~ 'procrastinate_(queue|fetch|finish)'"
)


def test_hints_of_dead_workers_are_deleted() -> None:
    """Hints of live workers and unfetched hints are kept."""
    run("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (NOW()), (NOW() - INTERVAL '1 hour')")
    for plan_pk in (1, 2, 3, 4):
        engine_hints.hint(plan_pk)
    taken = "UPDATE procrastinate_jobs SET status = 'doing', worker_id = ({}) WHERE args = '{{\"plan_pk\": {}}}'"
    run(taken.format("SELECT max(id) - 1 FROM procrastinate_workers", 1))
    run(taken.format("SELECT max(id) FROM procrastinate_workers", 2))
    run(taken.format("NULL", 3))
    assert engine_hints.discard_lost_hints() == 2
    assert sorted(status for status, _ in hints()) == ["doing", "todo"]
    run("DELETE FROM procrastinate_workers")
