"""Queries of the queue use indexes, so that decided requests cost nothing and no sorting is needed."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.queue.saved_views import SAVED_VIEWS
from approvals.reviews.decisions import decide
from tests.approvals.factories import ask, rejection


def ways_of(client: Client, address: str) -> list[str]:
    """Return SQLite's plan of each query of a page."""
    if connection.vendor != "sqlite":
        pytest.skip("Says how SQLite reads; PostgreSQL chooses by how much there is.")
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200
    with connection.cursor() as cursor:
        found = [cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}", ()).fetchall() for query in captured]
    return ["\n".join(row[-1] for row in rows) for rows in found]


@pytest.mark.parametrize("view", SAVED_VIEWS)
def test_every_view_uses_an_index(ada, rosa, view):
    requests = [ask(ada) for _ in range(3)]
    decide(requests[0], by=rosa, decision=rejection(requests[0], "No."))
    client = Client()
    client.force_login(rosa)
    ways = ways_of(client, f"/approvals/?status={view}")
    soon = "request_due_to_expire (status=? AND expires_at<?)"  # the few that expire soon, in the order of their index
    ways = [way for way in ways if soon not in way or "ORDER BY" in way]
    queue = [way for way in ways if "request_due_to_expire" in way or "INDEX request_queue" in way]
    assert queue and all("COVERING INDEX request_queue (status=?)" in way for way in queue)
    assert not any("TEMP B-TREE FOR ORDER BY" in way for way in queue)


@pytest.mark.parametrize("index", ["request_twins", "request_answered", "step_unknown"])
def test_related_queries_use_their_index(ada, rosa, index):
    requests = [ask(ada) for _ in range(3)]
    decide(requests[0], by=rosa, decision=rejection(requests[0], "No."))
    client = Client()
    client.force_login(rosa)
    assert any(f"INDEX {index} (" in way for way in ways_of(client, "/approvals/"))


@pytest.mark.parametrize("order", ["-decided", "decided"])
def test_decided_requests_are_read_in_the_order_of_an_index(ada, rosa, order):
    decide(request := ask(ada), by=rosa, decision=rejection(request, "No."))
    client = Client()
    client.force_login(rosa)
    ways = [way for way in ways_of(client, f"/approvals/decided/?sort={order}") if "request_by_decision" in way]
    assert ways and not any("TEMP B-TREE" in way for way in ways)
