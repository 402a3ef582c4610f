"""Texts of pages about calls that clients run, armed sessions and runs without permission."""

from datetime import timedelta

import pytest

from approvals.models import AuditEntry
from catalog.core import clock
from catalog.models import ClientRun, UngatedRun
from plans.coding_agents.sessions import note_connection, note_hook_traffic
from plans.engine import client_runs
from plans.models import Step
from plans.sessions import overview
from plans.web.plan.timeline import step_intervals
from tests.pages import Pages
from tests.plans.coding_agents.conftest import answer_request, call_of
from tests.rest import Rest


@pytest.fixture
def admin_pages(admin) -> Pages:
    return Pages(admin)


def test_alarm_is_on_home_until_an_administrator_has_seen_it(agent, admin, admin_pages):
    agent.ask()
    agent.report("toolu_9")
    run = UngatedRun.objects.get()
    admin_pages.open("/")
    assert 'id="ungated-runs"' in admin_pages.html
    admin_pages.send(f"/sessions/runs/{run.pk}/seen/", {})
    run.refresh_from_db()
    assert run.seen_by == admin and AuditEntry.objects.filter(action="run.seen").exists()
    admin_pages.open("/")
    assert 'id="ungated-runs"' not in admin_pages.html


def test_session_says_whether_it_is_armed(agent, admin_pages):
    answer = agent.ask()
    address = f"/sessions/{call_of(answer).plan_ref}/"
    admin_pages.open(address)
    assert 'id="armed"' not in admin_pages.html
    note_hook_traffic(agent.client, agent.session, by=agent.by, how="hook")
    admin_pages.open(address)
    assert 'id="armed"' in admin_pages.html
    agent.report("toolu_9")
    admin_pages.open(address)
    assert 'id="ungated-runs"' in admin_pages.html


def test_session_that_never_asked_is_not_shown_as_armed(agent, admin_pages):
    """Another session of the same token does ask."""
    plan = call_of(agent.ask()).plan_ref
    note_connection(agent.client, agent.session, by=agent.by)
    note_hook_traffic(agent.client, "another", by=agent.by, how="hook")
    admin_pages.open(f"/sessions/{plan}/")
    assert ("Another session asks" in admin_pages.html, "Armed since" in admin_pages.html) == (True, False)
    session = Rest(agent.user, "plans:read").get(f"sessions/{plan}/").json()
    assert session["armed"] is None and "another session" in session["why_not_armed"]


def test_session_says_what_its_calls_would_do(agent, rosa, admin_pages):
    answer = agent.ask(input={"command": "git status && rm -r build"})
    admin_pages.open(f"/sessions/{call_of(answer).plan_ref}/")
    assert "Run git, rm: deletes" in admin_pages.html


def test_session_summarises_no_more_than_it_can_read_at_once(agent, admin_pages, monkeypatch):
    answers = [agent.ask(call_id=name, input={"command": f"{name} -r build"}) for name in ("rm", "ls")]
    monkeypatch.setattr(overview, "MAX_SUMMARISED", len(call_of(answers[1]).arguments))
    admin_pages.open(f"/sessions/{call_of(answers[0]).plan_ref}/")
    assert ("Run ls" in admin_pages.html, "Run rm" in admin_pages.html) == (True, False)


def test_plan_and_request_say_that_the_client_runs_the_call(agent, rosa, admin_pages):
    answer = agent.ask()
    admin_pages.open(f"/approvals/?item={answer.approval}")
    assert 'id="client-run"' in admin_pages.html
    answer_request(answer, rosa)
    address = f"/plans/{call_of(answer).plan_ref}/"
    admin_pages.open(address)
    assert 'id="client-run"' in admin_pages.html
    agent.ask()
    ClientRun.objects.update(allowed_until=clock.now() - timedelta(seconds=1))
    client_runs.expire_unreported(clock.now())
    admin_pages.open(address)
    assert 'value="happened"' in admin_pages.html and 'value="request_again"' not in admin_pages.html


def test_source_of_a_client_can_be_disabled(agent, admin_pages):
    agent.ask()
    assert "claude-code" in admin_pages.open("/sources/")
    admin_pages.open("/sources/claude-code/")
    admin_pages.send("/sources/claude-code/change/", {"enabled": "no"})
    assert agent.ask(call_id="toolu_2").decision == "deny"


def test_timeline_counts_the_run_in_the_client_as_work(agent, rosa):
    answer = agent.ask()
    answer_request(answer, rosa)
    step = Step.objects.select_related("call__approval").get(call=call_of(answer))
    assert [each.kind for each in step_intervals([step], {})][-1] == "waiting"
    agent.ask()
    step = Step.objects.select_related("call__approval").get(call=call_of(answer))
    assert [each.kind for each in step_intervals([step], {})][-1] == "working"
