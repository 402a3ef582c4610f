"""Redis dies while plans run and people watch: it carries no data, so nothing is lost and nothing stands still."""

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
    """Return the steps of a plan that lasts about as long as Redis does."""
    return [
        step(number, "safe_work", parameters={"seconds": 0.1}, dependencies=[number - 1] if number > 1 else [])
        for number in range(1, STEPS + 1)
    ]


@pytest.mark.service
@pytest.mark.timeout(counts.seconds(900))
def test_redis_is_killed_with_sockets_open(redis, fleet, client_of, evidence, record_property):
    """Each watcher gets each event once, in order, whichever connection it comes over; every plan ends."""
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
        told = {"killed": KILLS, **evidence.summary(), "connections": sum(each.connections for each in followers)}
        counts.report(record_property, "Redis kills", seed=seed, **told)
        assert_nothing_is_wrong(evidence)


def created(client, key):
    """Create a plan, and ask until that is answered; return its id."""
    client.create(key, a_chain())
    eventually(lambda: client.try_again() or key not in client.open, what="an answer")
    return client.history.acknowledged("plan")[key]


def kill_and_start(redis, chance):
    """Let it work for a moment, then kill it, and start it again a moment later."""
    threading.Event().wait(chance.uniform(0.1, 1.0))
    redis.kill()
    threading.Event().wait(chance.uniform(0.1, 1.0))
    redis.start()


def judge(followers, client, processes):
    """Check that every plan ended and that every watcher saw all of it once."""
    until_quiet(client, processes)
    for each in followers:
        each.thread.join(timeout=FOLLOWED_SECONDS + 10)
        plan = Plan.objects.get(public_id=each.plan)
        assert plan.status == "completed"
        assert each.seen == list(range(1, plan.last_seq + 1))
