"""The list of decided requests."""

import csv
import io

import pytest

from approvals.reviews.decisions import decide
from tests.approvals.factories import approval, ask, rejection
from tests.builders import act, make_plan, reject, request_of, work_off
from tests.conftest import person
from tests.pages import Pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def decided(ada, rosa, tomas):
    """One request that waits, one that rosa rejected and one that tomas approved."""
    ask(ada)
    rejected, approved = ask(ada), ask(ada)
    decide(rejected, by=rosa, decision=rejection(rejected, "No."))
    decide(approved, by=tomas, decision=approval(approved))
    return {"rejected": rejected.public_id, "approved": approved.public_id}


def listed(user, query: str, decided: dict[str, str]) -> set[str]:
    pages = Pages(user)
    pages.open(f"/approvals/decided/{query}")
    return {name for name, public_id in decided.items() if f"item={public_id}" in pages.html}


def test_filters_apply(decided, vera):
    cases = {
        "": {"rejected", "approved"},
        "?status=rejected": {"rejected"},
        "?status=approved": {"approved"},
        "?status=expired": set(),
        "?reviewer=tomas": {"approved"},
        "?reviewer=rosa&requester=ada": {"rejected"},
        "?tool=write_note&age=1h": {"rejected", "approved"},
        "?tool=other": {"rejected", "approved"},
    }
    assert {query: listed(vera, query, decided) for query in cases} == cases


def test_last_decided_comes_first(ada, rosa):
    first, second = ask(ada), ask(ada)
    for request in (second, first):
        decide(request, by=rosa, decision=rejection(request, "No."))
    pages = Pages(rosa)
    pages.open("/approvals/decided/")
    assert pages.html.index(first.public_id) < pages.html.index(second.public_id)


def test_others_requests_are_not_listed_without_a_role(decided, ada):
    assert listed(person("nobody"), "", decided) == set()


def test_csv_leaves_private_summaries_out(stage, ada, rosa, admin):
    found = act(1, {"email": "jo@example.org"}, "private", expected_key="found")
    plan = work_off(make_plan(ada, found, act(2, {"to": "${found.results}"}, "dangerous", dependencies=[1])))
    reject(plan, rosa, 2)
    answer = Pages(admin).client.get("/approvals/decided/?format=csv").getvalue().decode()
    (row,) = csv.DictReader(io.StringIO(answer))
    assert (row["id"], row["summary"]) == (request_of(plan, 2).public_id, "Run dangerous")
