"""Usage of the last days: what is counted, for whom, and as CSV."""

from datetime import timedelta
from decimal import Decimal

import pytest

from approvals.queue import insights
from approvals.reviews.decisions import decide
from catalog.access.tokens import create_token
from catalog.core import clock
from catalog.models import Call
from plans.models import AgentRun, ModelUse, Step
from plans.store import usage
from plans.store.usage import usage_report
from plans.web import usage as usage_page
from tests.approvals.factories import approval, ask, rejection
from tests.builders import act, call_of, make_plan, work_off
from tests.pages import Pages
from tests.plans.agents.scripted import make_agent

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stage")]


def use_model(call, cost: Decimal | None, days_ago: int = 0) -> None:
    """Store a request to a model with 30 tokens."""
    ModelUse.objects.create(
        call=call,
        plan=make_plan(call.requested_by, act(1)),
        purpose="draft",
        model="=gpt",
        input_tokens=10,
        output_tokens=20,
        cost=cost,
        latency_ms=5,
        at=clock.now() - timedelta(days=days_ago),
    )


def test_calls_tokens_and_cost_are_counted(ada, vera):
    call = call_of(work_off(make_plan(ada, act(1), act(2))), 1)
    use_model(call, Decimal("0.25"))
    use_model(call, None)
    use_model(call, Decimal(9), days_ago=7)
    report = usage_report(vera, 7)
    assert len(report.per_day) == 7
    total = report.per_day[-1].line
    assert total == report.total
    assert (total.calls, total.requests, total.tokens, total.cost, report.unpriced) == (2, 2, 60, Decimal("0.25"), 1)
    assert [(line.name, line.calls, line.tokens) for line in report.people] == [("Ada", 2, 60)]
    assert [(line.name, line.requests) for line in report.models] == [("=gpt", 2)]
    assert sum(line.calls for line in report.tools) == 2


def test_only_the_newest_rows_are_counted(ada, vera, monkeypatch):
    work_off(make_plan(ada, act(1), act(2), act(3)))
    monkeypatch.setattr(usage, "MAX_CALLS_COUNTED", 2)
    report = usage_report(vera, 7)
    assert (report.total.calls, report.is_cut) == (2, True)


def test_what_the_page_leaves_out_is_said(ada, rosa, vera, monkeypatch):
    """The CSV has the lines that the table leaves out."""
    work_off(make_plan(ada, act(1), act(2, "x", tool="cautious")))
    for _ in range(3):
        decide(request := ask(ada), by=rosa, decision=rejection(request, "No."))
    page = Pages(vera).open("/usage/")
    assert "most used of" not in page and "newest" not in page
    monkeypatch.setattr(usage_page, "LINES_SHOWN", 2)
    monkeypatch.setattr(insights, "MAX_DECISIONS_TIMED", 2)
    pages = Pages(vera)
    page = pages.open("/usage/")
    assert "The 2 most used of 3. The CSV has all." in page
    assert "Decisions and waits are those of the newest" in page
    assert len(pages.client.get("/usage/?csv=tools").content.decode().splitlines()) == 4


def test_decisions_are_counted_for_tool_requester_client_and_agent(ada, rosa, vera):
    """An agent's calls are those of its run, whoever wrote the plan; a client's are those of its token."""
    decided = [ask(ada), ask(ada)]
    decide(decided[0], by=rosa, decision=approval(decided[0]))
    decide(decided[1], by=rosa, decision=rejection(decided[1], "No."))
    run = AgentRun.objects.create(
        agent=make_agent(), step=make_plan(ada, act(1)).steps.get(), settings="{}", started_at=clock.now()
    )
    child = make_plan(ada, act(1)).steps.get()
    Step.objects.filter(pk=child.pk).update(parent=run.step, call=decided[0].call)
    token, _ = create_token(user=ada, kind="agent", scopes=["calls:create"], name="laptop")
    Call.objects.filter(pk=decided[1].call_id).update(token=token)
    report = usage_report(vera, 7)
    lines = [next(line for line in lines if line.decided) for lines in (report.tools, report.people)]
    assert [(line.name, line.decided, line.approved) for line in (*lines, *report.agents, *report.clients)] == [
        ("write_note", 2, 1),
        ("Ada", 2, 1),
        ("ann", 1, 1),
        ("laptop, for Ada", 1, 0),
    ]
    assert (report.total.decided, report.per_day[-1].line.decided) == (2, 2)
    assert report.total.wait is not None


def test_tables_are_csv_without_formulas(ada, vera):
    use_model(call_of(work_off(make_plan(ada, act(1))), 1), Decimal("0.5"))
    client = Pages(vera).client
    assert client.get("/usage/?csv=models").content.decode().splitlines()[1] == "'=gpt,0,0,1,30,0.5,0,0,"
    assert len(client.get("/usage/?days=14&csv=days").content.decode().splitlines()) == 15
