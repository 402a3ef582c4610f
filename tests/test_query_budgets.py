"""A page costs the same number of queries however much there is to show, and never more than its budget."""

import json
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.builders import make_plan, reject, request_of, step, work_off, write_step
from tests.conftest import forget_what_was_read, person

BUDGETS: dict[str, int] = json.loads((Path(__file__).parent / "query_budgets.json").read_text(encoding="utf-8"))


@pytest.fixture
def reader(db: None) -> User:
    """Someone who may open every page and decide."""
    return person("reader", "reviewer", "administrator")


def add_a_plan(author: User, reviewer: User) -> dict[str, str]:
    """Store a plan that waits and one that was refused; return what the addresses of pages name."""
    steps = [step(1), step(2, dependencies=[1]), write_step(3, dependencies=[2]), step(4, dependencies=[3])]
    waiting, refused = work_off(make_plan(author, *steps)), work_off(make_plan(author, *steps))
    reject(refused, reviewer, 3)
    return {"plan": waiting.public_id, "item": request_of(waiting, 3).public_id}


def queries_of(client: Client, address: str) -> int:
    """Open a page and return how many queries that took, the occasional look at the catalog included."""
    forget_what_was_read()
    with CaptureQueriesContext(connection) as captured:
        response = client.get(address)
    assert response.status_code == 200, address
    return len(captured)


@pytest.mark.usefixtures("catalog", "workspace")
@pytest.mark.parametrize("page", BUDGETS)
def test_a_page_keeps_to_its_budget(page: str, ada: User, rosa: User, reader: User) -> None:
    """With little and with more."""
    add_a_plan(ada, rosa)
    named, client = add_a_plan(ada, rosa), Client()
    client.force_login(reader)
    little = queries_of(client, page.format(**named))
    for _ in range(3):
        add_a_plan(ada, rosa)
    more = queries_of(client, page.format(**named))
    assert more == little
    assert more <= BUDGETS[page]
