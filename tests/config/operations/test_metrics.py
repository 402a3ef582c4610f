"""/metrics: values, access, no personal data."""

import os
import re
import subprocess
import sys
from datetime import timedelta

import pytest
from django.conf import settings as configured
from django.db import DatabaseError, connection

from approvals.models import ApprovalRequest
from catalog.core import clock
from config.operations import metrics
from config.operations.health import CachedProbe
from plans.actions.control import pause_plan
from plans.metrics import MULTIPROCESS_DIR_VARIABLE
from plans.store import backlog
from plans.store.requesters import Requester
from tests.builders import act, approve, make_plan, work_off
from tests.rest import Rest

pytestmark = pytest.mark.db

LINE = re.compile(r'[a-z_]+(?:\{(?:[a-z]+="[A-Za-z0-9_.:+-]*",?)+\})? [0-9.e+-]+')


def read(client, **headers: str) -> dict[str, float]:
    """Return the value of each series from a fresh scrape."""
    metrics._database.fresh.forget()
    response = client.get("/metrics", headers=headers)
    assert (response.status_code, response["Content-Type"][:10]) == (200, "text/plain")
    lines = [line for line in response.content.decode().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def seen(client):
    """The values before the test; a function tells by how much one grew since."""
    before = read(client)
    return lambda name: read(client).get(name, 0.0) - before.get(name, 0.0)


@pytest.mark.django_db(transaction=True)
def test_steps_and_calls_are_counted_and_timed(client, stage, ada, seen):
    stage.acts["cautious"] = lambda value, context: 1 / 0
    work_off(make_plan(ada, act(1), act(2, tool="cautious", dependencies=[1])))
    assert seen('toolgate_step_seconds_count{level="safe",outcome="completed"}') == 1
    assert seen('toolgate_step_seconds_count{level="cautious",outcome="failed"}') == 1
    assert seen('toolgate_calls_total{level="safe",status="completed"}') == 1
    assert seen('toolgate_calls_total{level="cautious",status="failed"}') == 1
    assert seen("toolgate_step_wait_seconds_count") == 2


@pytest.mark.django_db(transaction=True)
def test_what_waits_is_counted_with_its_age(client, stage, ada, rosa, seen):
    plan = make_plan(ada, act(1, tool="dangerous"))
    assert (seen("toolgate_steps_ready"), seen("toolgate_approvals_waiting")) == (1, 0)
    work_off(plan)
    ApprovalRequest.objects.update(opened_at=clock.now() - timedelta(hours=1))
    found = read(client)
    assert (found["toolgate_steps_ready"], found["toolgate_approvals_waiting"]) == (0, 1)
    assert 3600 <= found["toolgate_approvals_oldest_seconds"] < 4000
    approve(plan, rosa)
    assert (seen('toolgate_decisions_total{verdict="approve"}'), seen("toolgate_approvals_waiting")) == (1, 0)


@pytest.mark.django_db(transaction=True)
def test_database_gauges_cost_one_indexed_query(stage, django_assert_num_queries):
    with django_assert_num_queries(1):
        found = backlog.count_backlog()
    assert (found.ready, found.running, found.unknown, found.oldest_ready) == (0, 0, 0, 0.0)
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {backlog.COUNT_BACKLOG}", [clock.now()] * 2)
            steps = [row[3] for row in cursor.fetchall() if re.match("(SCAN|SEARCH) (plans|approvals|catalog)", row[3])]
        assert (len(steps), [step for step in steps if " USING " not in step]) == (8, [])


@pytest.mark.django_db(transaction=True)
def test_steps_of_paused_plans_are_not_in_the_queue(client, stage, ada, seen):
    plan = make_plan(ada, act(1))
    assert seen("toolgate_steps_ready") == 1
    pause_plan(plan, by=Requester(ada))
    assert seen("toolgate_steps_ready") == 0


@pytest.mark.django_db(transaction=True)
def test_requests_are_timed_by_the_name_of_their_view(ada, client, seen):
    """Paths are unbounded, and statuses are grouped by class."""
    Rest(ada).get("plans/plan_nowhere/")
    client.get("/nowhere/at/all/")
    client.generic("BREW", "/healthz")
    assert seen('toolgate_request_seconds_count{method="GET",status="4xx",view="api-plan"}') == 1
    assert seen('toolgate_request_seconds_count{method="GET",status="4xx",view="none"}') == 1
    assert seen('toolgate_request_seconds_count{method="other",status="4xx",view="healthz"}') == 1


def test_without_the_database_the_other_metrics_are_served(client, monkeypatch):
    def fail() -> None:
        raise DatabaseError

    monkeypatch.setattr(metrics._database, "fresh", CachedProbe(fail))
    found = read(client)
    assert found["toolgate_database_up"] == 0
    assert "toolgate_steps_ready" not in found
    assert "toolgate_sockets_open" in found


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.7", {}, 403),
        ("", {}, 403),
        ("127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}, 403),
        ("127.0.0.1", {"X-Forwarded-Proto": "https"}, 403),
        ("127.0.0.1", {"Forwarded": "for=10.0.0.7"}, 403),
    ],
)
def test_without_a_token_only_this_machine_may_read(client, db, address, headers, status):
    assert client.get("/metrics", headers=headers, REMOTE_ADDR=address).status_code == status


@pytest.mark.parametrize(
    ("given", "status"),
    [(None, 403), ("Bearer wrong", 403), ("Bearer ", 403), ("Bearer scrape-scrape-scrape", 200), ("Bearer é", 403)],
)
def test_configured_token_is_required(client, db, settings, given, status):
    settings.TOOLGATE_METRICS_TOKEN = "scrape-scrape-scrape"
    headers = {"Authorization": given} if given else {}
    assert client.get("/metrics", headers=headers, REMOTE_ADDR="10.0.0.7").status_code == status
    assert client.get("/metrics").status_code == 403


COUNT = """
import os, django; django.setup()
from plans import metrics
metrics.count_ended_call("completed", "safe"); metrics.set_thread_counts(busy=1, idle=3, aside=0, late=0)
"""
ADD_UP = """
import django; django.setup()
from prometheus_client import generate_latest
from config.operations import metrics
metrics.DatabaseCollector.collect = lambda self: []
print(generate_latest(metrics.metrics_registry()).decode())
"""


@pytest.mark.slow
def test_processes_that_share_a_folder_are_added_up(tmp_path):
    """Counters of an ended process stay; its gauges are removed."""
    environment = {**os.environ, MULTIPROCESS_DIR_VARIABLE: str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}

    def run(code: str) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=configured.BASE_DIR, env=environment, capture_output=True, text=True).stdout

    run(COUNT), run(COUNT)
    found = run(ADD_UP)
    assert 'toolgate_calls_total{level="safe",status="completed"} 2.0' in found
    assert 'toolgate_executor_threads{state="busy"}' not in found
