"""Redis is killed while plans run and clients follow them: it holds no data, so nothing is lost or stuck."""

import threading

import pytest

from plans.models import Plan
from tests import counts
from tests.builders import step
from tests.chaos.cluster import COMMANDS, ENVIRONMENT
from tests.chaos.loop import places, until_quiet
from tests.chaos.redis import FOLLOWED_SECONDS, Follower, RedisServer
from tests.chaos.verdicts import assert_nothing_is_wrong
from tests.waiting import eventually

pytestmark = [pytest.mark.service, pytest.mark.nightly, pytest.mark.timeout(counts.seconds(900))]
KILLS = counts.count(30)
STEPS = 12


@pytest.fixture
def redis(tmp_path):
    """A Redis of the test's own."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


def a_chain():
    """Return the steps of a plan that runs about as long as Redis does between two kills."""
    return [
        step(number, "safe_work", parameters={"seconds": 0.1}, dependencies=[number - 1] if number > 1 else [])
        for number in range(1, STEPS + 1)
    ]


def test_redis_is_killed_with_sockets_open(redis, fleet, client_of, evidence, record_property):
    """Each follower gets each event once and in order, over any number of connections; every plan completes."""
    seed = counts.seed()
    processes = fleet(*COMMANDS, **{**ENVIRONMENT, "REDIS_URL": redis.url})
    client, chance = client_of(processes, seed), counts.dice(seed + 1)
    followers: list[Follower] = []
    with evidence.kept("Redis kills", seed):
        for process in processes:
            process.start()
        eventually(lambda: places(processes), what="the start")
        for number in range(KILLS):
            plan = created(client, f"watched-{number}")
            followers.append(Follower(places(processes)[0], plan, client.author, counts.dice(seed + number)))
            followers[-1].start()
            kill_and_start(redis, chance)
        judge(followers, client, processes)
        summary = {"killed": KILLS, **evidence.summary(), "connections": sum(each.connections for each in followers)}
        counts.report(record_property, "Redis kills", seed=seed, **summary)
        assert_nothing_is_wrong(evidence)


def created(client, key):
    """Create a plan, retrying until it is acknowledged; return its id."""
    client.create(key, a_chain())
    eventually(lambda: client.try_again() or key not in client.open, what="an answer")
    return client.history.acknowledged("plan")[key]


def kill_and_start(redis, chance):
    """Kill Redis and start it again, each after a random moment."""
    threading.Event().wait(chance.uniform(0.1, 1.0))
    redis.kill()
    threading.Event().wait(chance.uniform(0.1, 1.0))
    redis.start()


def judge(followers, client, processes):
    """Check that every plan completed and that its follower saw each event once."""
    until_quiet(client, processes)
    for each in followers:
        each.thread.join(timeout=FOLLOWED_SECONDS + 10)
        plan = Plan.objects.get(public_id=each.plan)
        assert plan.status == "completed"
        assert each.seen == list(range(1, plan.last_seq + 1))
