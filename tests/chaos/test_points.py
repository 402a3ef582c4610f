"""A fault at each commit point, before and after it, and at each edge of a tool's run."""

from functools import partial

import pytest
from django.db import connection

from tests import counts
from tests.builders import step
from tests.chaos.loop import Faults, places, until_quiet
from tests.chaos.points import COMMITS, POINTS
from tests.chaos.proxy import Proxy
from tests.chaos.serving import LEASE_SECONDS, SERVE, database_url
from tests.chaos.verdicts import assert_nothing_is_wrong
from tests.waiting import eventually

ROUNDS = 3
FEW = 3
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(counts.seconds(1800))]
MOMENTS = ("before", "after")


def some(points, seed):
    """Return the points, each before and after, shuffled: three times in full mode, otherwise the first few."""
    each = [(point, moment) for point in points for moment in MOMENTS]
    counts.dice(seed).shuffle(each)
    return each * ROUNDS if counts.FULL else each[:FEW]


def a_chain():
    """Return the steps of a plan that reaches every point."""
    return [
        step(1, "dangerous_work"),
        step(2, "safe_work", dependencies=[1]),
        step(3, "cautious_work", dependencies=[2]),
    ]


def go_through(scenario, faults, client, evidence, record_property):
    """Cause each fault in a plan of its own, then report and judge."""
    with evidence.kept(scenario, faults.seed):
        for number, (point, moment) in enumerate(faults.wanted):
            faults.arm(point, moment)
            client.create(f"{point}-{moment}-{number}", a_chain())
            faults.wait_for_it(client, partial(create_another, client))
        quiet = round(until_quiet(client, faults.fleet), 1)
        summary = {"faults": len(faults.wanted), **evidence.summary(), "sent_again": client.retried}
        counts.report(record_property, scenario, seed=faults.seed, **summary, seconds_to_quiet=quiet)
        assert_nothing_is_wrong(evidence)


def create_another(client):
    """Create one more plan, since the first did not reach the point."""
    client.create(f"again-{client.history.count('invoke')}", a_chain())


@pytest.mark.parametrize("action", ["exit", "raise"])
def test_a_process_fails_at_a_named_point(action, fleet, client_of, evidence, record_property):
    """The process exits there, or its database reports an error though the commit may have happened."""
    seed = counts.seed()
    processes = fleet(SERVE, TOOLGATE_TEST_POINTS="1")
    points = POINTS if action == "exit" else tuple(COMMITS)
    faults = Faults(processes, some(points, seed), seed, effects=evidence.effects, action=action)
    go_through(f"fail points, {action}", faults, client_of(processes, seed), evidence, record_property)


@pytest.fixture
def proxy(transactional_db):
    """A proxy before PostgreSQL."""
    database = connection.settings_dict
    made = Proxy(database["HOST"], int(database["PORT"] or 5432))
    made.start()
    yield made
    made.stop()


@pytest.mark.service
def test_the_database_is_cut_off_at_a_named_point(proxy, fleet, client_of, evidence, record_property):
    """The connection ends before COMMIT reaches the server, or after the commit and before its answer."""
    seed = counts.seed()
    environment = {"DATABASE_URL": database_url(proxy.port), "PGSSLMODE": "disable", "PGGSSENCMODE": "disable"}
    processes = fleet(SERVE, TOOLGATE_TEST_ANNOUNCE="1", **environment)
    faults = Faults(processes, some(COMMITS, seed), seed, proxy=proxy)
    go_through("connection cut at COMMIT", faults, client_of(processes, seed), evidence, record_property)


@pytest.mark.service
def test_the_database_is_away_for_a_while(proxy, fleet, client_of, evidence, record_property):
    """Connections are cut and refused for up to three leases; before and after that some are slow."""
    seed = counts.seed()
    chance, times = counts.dice(seed), counts.count(30)
    processes = fleet(SERVE, DATABASE_URL=database_url(proxy.port), PGSSLMODE="disable", PGGSSENCMODE="disable")
    client = client_of(processes, seed)
    with evidence.kept("database away", seed):
        processes[0].start()
        eventually(lambda: places(processes), what="the start")
        for number in range(times):
            proxy.delay_seconds = chance.choice((0.0, 0.0, 0.005))
            client.create(f"away-{number}", a_chain())
            client.approve_what_waits()
            proxy.away(chance.uniform(0.2, 3 * LEASE_SECONDS))
        proxy.delay_seconds = 0.0
        quiet = round(until_quiet(client, processes), 1)
        summary = {"times_away": times, **evidence.summary(), "sent_again": client.retried}
        counts.report(record_property, "database away", seed=seed, **summary, seconds_to_quiet=quiet)
        assert_nothing_is_wrong(evidence)
