"""Query budgets of pages, independent of the amount of data."""

import json
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.reviews.batch import BatchItem, decide_many
from plans.actions.drafts import create_draft
from plans.models import Plan
from tests.builders import act, make_draft, make_plan, reject, request_of, step, work_off, write_step
from tests.conftest import forget_what_was_read, person
from tests.rest import Rest

# A page trusts what it has read until it is done, however long a busy machine takes.
pytestmark = [pytest.mark.db, pytest.mark.usefixtures("trusted_for_long")]

BUDGETS: dict[str, int] = json.loads((Path(__file__).parent / "query_budgets.json").read_text(encoding="utf-8"))

ANSWER_BUDGET = 32
"""For one rejection among many, with what becomes of its plan: 30 on SQLite. Savepoints are not counted."""

ACTION_BUDGETS = {"claim/": 24, "release/": 22, "comments/": 23, "snooze/": 15, "delegate/": 33, "reviews/": 43}
"""For an action over REST, its answer included, which shows the request with all its relations."""

PRIVATE_BUDGETS = {"/approvals/": 41, "/approvals/?status=decided": 34, "/api/v1/approvals/": 18}
"""For who must not see private data, where there is some: it is looked for once for the list, once for what is open."""


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


def plan_named(public_id: str) -> Plan:
    """Return a plan by its id."""
    return Plan.objects.get(public_id=public_id)


def queries_of(client: Client, address: str) -> int:
    """Open a page and return how many queries that took, the occasional look at the catalog included."""
    forget_what_was_read()
    with CaptureQueriesContext(connection) as captured:
        response = client.get(address)
    assert response.status_code == 200, address
    return len(captured)


@pytest.mark.usefixtures("catalog", "workspace")
def test_every_page_keeps_to_its_budget(ada: User, rosa: User, reader: User) -> None:
    add_a_plan(ada, rosa)
    named, client = add_a_plan(ada, rosa), Client()
    named["draft"] = make_draft(reader, plan_named(named["plan"])).public_id
    named["written"] = create_draft({"goal": "Try it", "steps": [step(1), write_step(2)]}, by=reader).public_id
    client.force_login(reader)
    client.get("/")  # a process asks the database once whether it reads JSON
    little = {page: queries_of(client, page.format(**named)) for page in BUDGETS}
    for _ in range(3):
        make_draft(reader, plan_named(add_a_plan(ada, rosa)["plan"]))
        make_draft(reader, plan_named(named["plan"]))
        create_draft({"goal": "Try it", "steps": [step(1)]}, by=reader)
    more = {page: queries_of(client, page.format(**named)) for page in BUDGETS}
    assert more == little
    assert {page: queries for page, queries in more.items() if queries > BUDGETS[page]} == {}


def add_a_private_plan(author: User, reviewer: User) -> None:
    """Store a plan that waits with what came of somebody's own, and one whose request was refused."""
    look = act(1, {"email": "jo@example.org"}, "private", expected_key="found")
    tell = act(2, {"to": "${found.results}"}, "dangerous", dependencies=[1])
    plans = [work_off(make_plan(author, look, tell)) for _ in range(2)]
    reject(plans[1], reviewer, 2)


@pytest.mark.usefixtures("stage")
@pytest.mark.parametrize("page", PRIVATE_BUDGETS)
def test_plans_with_private_data_cost_no_more_the_more_there_are(page: str, ada: User, rosa: User, vera: User) -> None:
    client = Client()
    client.force_login(vera)
    for _ in range(2):
        add_a_private_plan(ada, rosa)
    little = queries_of(client, page)
    for _ in range(3):
        add_a_private_plan(ada, rosa)
    assert queries_of(client, page) == little
    assert little <= PRIVATE_BUDGETS[page]


def answers_of(author: User, reviewer: User, count: int) -> int:
    """Reject so many requests at once and return how many queries that took."""
    plans = [work_off(make_plan(author, act(1, f"{count} {number}", "dangerous"))) for number in range(count)]
    items = [BatchItem(request.public_id, request.digest) for request in (request_of(plan) for plan in plans)]
    with CaptureQueriesContext(connection) as captured:
        results = decide_many(reviewer, "reject", "No.", items)
    assert {result.status for result in results} == {"rejected"}
    return sum("SAVEPOINT" not in query["sql"] for query in captured)


@pytest.mark.usefixtures("stage")
def test_an_answer_among_many_keeps_to_its_budget(ada: User, rosa: User) -> None:
    answers_of(ada, rosa, 1)
    few, more = answers_of(ada, rosa, 2), answers_of(ada, rosa, 6)
    assert (more - few) % 4 == 0
    assert (more - few) // 4 <= ANSWER_BUDGET


@pytest.mark.usefixtures("stage")
def test_actions_over_rest_keep_to_their_budgets(ada: User, rosa: User, tomas: User) -> None:
    rest, costs = Rest(rosa), {}
    waiting = request_of(work_off(make_plan(ada, act(1, "x", "dangerous"))))
    bodies = {
        "comments/": {"text": "Why?"},
        "delegate/": {"to": tomas.username},
        "reviews/": {"verdict": "reject", "seen_digest": waiting.digest, "comment": "No."},
        "snooze/": {"until": None},
    }
    for action in ACTION_BUDGETS:
        with CaptureQueriesContext(connection) as captured:
            response = rest.post(f"approvals/{waiting.public_id}/{action}", bodies.get(action, {}))
        assert response.status_code in (200, 201), action
        costs[action] = sum("SAVEPOINT" not in query["sql"] for query in captured)
    assert {action: cost for action, cost in costs.items() if cost > ACTION_BUDGETS[action]} == {}
