"""Tests of the list of a plan's events: one line a step, filters, pages."""

import html
import re

import pytest
from django.contrib.auth.models import User

from plans.models import Plan
from plans.store.transactions import plan_transaction
from tests.builders import make_plan, step
from tests.pages import Pages

pytestmark = pytest.mark.usefixtures("catalog", "workspace")
PART = {"HX-Request": "true", "HX-Target": "event-list"}


@pytest.fixture
def plan(ada: User) -> Plan:
    """A plan whose first step began twice; its last events are of the second step."""
    plan = make_plan(ada, step(1), step(2), step(3), start=False)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        for kind, number, data in (
            ("plan.started", None, {}),
            ("step.started", 1, {"attempt": 1}),
            ("step.started", 3, {"attempt": 1}),
            ("step.retrying", 1, {"seconds": 1, "attempt": 1, "of": 3}),
            ("step.started", 1, {"attempt": 2}),
            ("memory.written", 1, {"key": "note"}),
            ("step.started", 2, {"attempt": 1}),
            ("call.started", 2, {}),
        ):
            tx.record(kind, number, **data)
    return plan


def listed(user: User, plan: Plan, query: str = "") -> list[str]:
    """Return the ids of the lines, which name a step or an event."""
    page = Pages(user).client.get(f"/plans/{plan.public_id}/{query}", headers=PART)
    return re.findall(r'<li[^>]* id="([eg]\d+)"', page.content.decode())


def test_each_step_has_one_line_and_opens_to_its_events(plan: Plan, ada: User) -> None:
    assert listed(ada, plan) == ["g2", "g1", "g3", "g0"]
    assert listed(ada, plan, "?of=1") == ["e7", "e6", "e5", "e3"]
    lines = Pages(ada).client.get(f"/plans/{plan.public_id}/?of=2", headers=PART | {"HX-Target": "lines-2"})
    assert re.findall(r'id="(e\d+)"', lines.content.decode()) == ["e9", "e8"]
    assert "HX-Replace-Url" not in lines


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?event=step", ["g2", "g1", "g3"]),
        ("?event=memory", ["g1"]),
        ("?event=memory&of=2", []),
        ("?event=nonsense&of=-1&before=%00&attempt=x", ["g2", "g1", "g3", "g0"]),
        ("?of=0", ["e2", "e1"]),
        ("?of=1&attempt=1", ["e5", "e3"]),
        ("?of=1&attempt=2", ["e7", "e6"]),
        ("?of=1&attempt=9", ["e7", "e6", "e5", "e3"]),
    ],
)
def test_filters(plan: Plan, ada: User, query: str, found: list[str]) -> None:
    assert listed(ada, plan, query) == found


@pytest.mark.parametrize("query", ["?event=step", "?of=1", ""])
def test_pages_reach_every_line_without_scripts(plan: Plan, ada: User, monkeypatch, query: str) -> None:
    whole = listed(ada, plan, query)
    monkeypatch.setattr("plans.web.plan.event_list.LINES_SHOWN", 1)
    pages, seen, path = Pages(ada), [], f"/plans/{plan.public_id}/{query}"
    for rel in ("next", "prev"):
        while path:
            pages.open(path)
            seen += re.findall(r'<li[^>]* id="([eg]\d+)"', pages.html)
            path = html.unescape("".join(re.findall(rf'rel="{rel}" href="([^"#]+)', pages.html)))
        path = html.unescape("".join(re.findall(r'rel="prev" href="([^"#]+)', pages.html)))
    assert seen == whole + whole[-2::-1]


def test_address_keeps_step_and_filters(plan: Plan, ada: User) -> None:
    current = {"HX-Current-URL": f"http://localhost/plans/{plan.public_id}/?step=2&fold=tool"}
    response = Pages(ada).client.get(f"/plans/{plan.public_id}/?of=1&before=6", headers=PART | current)
    assert response["HX-Replace-Url"] == f"/plans/{plan.public_id}/?step=2&fold=tool&of=1&before=6"
    filtered = {"HX-Current-URL": f"http://localhost/plans/{plan.public_id}/?of=1", "HX-Target": "step"}
    response = Pages(ada).client.get(f"/plans/{plan.public_id}/?step=3", headers=PART | filtered)
    assert response["HX-Replace-Url"] == f"/plans/{plan.public_id}/?step=3&of=1"
