"""Tests of reports about runs that nobody allowed."""

import pytest

from approvals.models import AuditEntry, Delivery
from approvals.notifications.messages import build_notice
from catalog.core import clock
from catalog.models import UngatedRun
from plans.coding_agents import reports
from plans.coding_agents.reports import mark_as_seen
from plans.coding_agents.sessions import (
    Armed,
    AsksElsewhere,
    NotArmed,
    armed_state,
    coding_agent_of,
    note_check,
    note_connection,
    note_hook_traffic,
)
from plans.engine import client_runs
from plans.sessions.lists import SessionKey
from tests.plans.coding_agents.conftest import COMMAND, answer_request, call_of


def test_run_that_nobody_asked_about_raises_one_alarm(agent, admin, settings):
    settings.TOOLGATE_SENDS_MAIL = True
    admin.email = "admin@example.org"
    admin.save()
    for _ in range(2):
        assert agent.report("toolu_9").effect == "ungated"
    alarm = UngatedRun.objects.get()
    assert (alarm.client_tool, alarm.client_call_id, alarm.reports, alarm.seen_at) == ("Bash", "toolu_9", 2, None)
    delivery = Delivery.objects.get(kind="run.ungated", person=admin)
    assert build_notice(delivery).facts["Session"] == "s1"


def test_further_alarms_of_a_session_notify_nobody(agent, admin, settings):
    settings.TOOLGATE_SENDS_MAIL = True
    admin.email = "admin@example.org"
    admin.save()
    for number in range(3):
        agent.report(f"toolu_{number}")
    assert (UngatedRun.objects.count(), Delivery.objects.filter(kind="run.ungated").count()) == (3, 1)


@pytest.fixture
def alarmed(agent, admin, settings):
    """An alarm about a call under an id that its client counts anew, in a session that has asked again since."""
    settings.TOOLGATE_SENDS_MAIL = True
    admin.email = "admin@example.org"
    admin.save()
    agent.ask()  # makes the tool known
    agent.report("call_0", input=COMMAND)
    note_hook_traffic(agent.client, agent.session, by=agent.by, how="hook")
    return UngatedRun.objects.get()


@pytest.mark.parametrize("changes", [{"tool": "Write"}, {"input": {"command": "rm -r src"}}], ids=str)
def test_another_run_under_the_same_id_raises_an_alarm_of_its_own(agent, key, alarmed, changes):
    assert agent.report("call_0", **{"input": COMMAND, **changes}).effect == "ungated"
    assert [run.reports for run in UngatedRun.objects.order_by("pk")] == [1, 1]
    assert isinstance(armed_state(key), NotArmed)


@pytest.mark.parametrize("was", ["seen", "long ago"])
def test_same_run_under_the_same_id_raises_the_alarm_again(agent, key, alarmed, admin, was):
    if was == "seen":
        mark_as_seen(alarmed, by=admin)
    else:
        UngatedRun.objects.update(reported_at=clock.now() - 2 * reports.QUIET_TIME)
    agent.report("call_0", input=COMMAND)
    again = UngatedRun.objects.get()
    assert (again.reports, again.seen_at, again.seen_by) == (2, None, None)
    assert again.reported_at > alarmed.reported_at
    notices = [build_notice(delivery) for delivery in Delivery.objects.filter(kind="run.ungated")]
    assert [notice.facts["Session"] for notice in notices] == ["s1", "s1"]
    assert AuditEntry.objects.filter(action="run.ungated").count() == 2
    assert isinstance(armed_state(key), NotArmed)


def test_run_that_is_only_counted_disarms_its_session_too(agent, key, alarmed, monkeypatch):
    agent.report("call_0", input=COMMAND)
    assert isinstance(armed_state(key), NotArmed)
    assert AuditEntry.objects.filter(action="run.ungated").count() == 1
    monkeypatch.setattr(reports, "MAX_ALARMS", 1)
    note_hook_traffic(agent.client, agent.session, by=agent.by, how="permissions")
    assert isinstance(armed_state(key), Armed)
    agent.report("call_1", input=COMMAND)
    assert isinstance(armed_state(key), NotArmed)


def test_alarms_of_a_session_are_limited(agent, monkeypatch):
    monkeypatch.setattr(reports, "MAX_ALARMS", 2)
    for number in range(5):
        agent.report(f"toolu_{number}")
    assert list(UngatedRun.objects.order_by("pk").values_list("reports", flat=True)) == [1, 4]


def test_alarms_of_sessions_that_a_client_makes_up_are_limited(agent, admin, settings, monkeypatch):
    settings.TOOLGATE_SENDS_MAIL = True
    admin.email = "admin@example.org"
    admin.save()
    monkeypatch.setattr(reports, "MAX_NOTICES", 1)
    monkeypatch.setattr(reports, "MAX_LATE_ALARMS", 2)
    for number in range(5):
        agent.session = f"s{number}"
        agent.report("toolu_9")
    assert list(UngatedRun.objects.order_by("pk").values_list("reports", flat=True)) == [1, 4]
    assert Delivery.objects.filter(kind="run.ungated").count() == 1


@pytest.fixture
def key(agent):
    return SessionKey(agent.user.pk, agent.token.pk, agent.session)


def test_question_arms_a_session_and_an_ungated_run_disarms_it(agent, key):
    assert armed_state(key) is None
    note_hook_traffic(agent.client, agent.session, by=agent.by, how="hook")
    note_check(agent.client, "session-of-the-check", by=agent.by)
    state = armed_state(key)
    assert isinstance(state, Armed) and state.checked_at is not None
    agent.report("toolu_9")
    assert isinstance(armed_state(key), NotArmed)


def test_connection_without_questions_is_not_armed(agent, key):
    note_connection(agent.client, agent.session, by=agent.by)
    assert isinstance(armed_state(key), NotArmed)
    note_hook_traffic(agent.client, "another", by=agent.by, how="hook")
    assert isinstance(armed_state(key), AsksElsewhere)
    note_hook_traffic(agent.client, agent.session, by=agent.by, how="hook")
    assert isinstance(armed_state(key), Armed)


@pytest.mark.parametrize(
    ("name", "client"), [("claude-code", "claude-code"), ("codex-mcp-client", "codex"), ("cursor", None)]
)
def test_coding_agents_are_known_by_their_mcp_names(name, client):
    assert coding_agent_of(name) == client


@pytest.mark.parametrize(
    "reported", [{"input": {"command": "rm -r src"}}, {"input": {**COMMAND, "timeout": 5}}, {"tool": "Write"}], ids=str
)
def test_run_with_another_tool_or_input_than_allowed_raises_an_alarm(agent, rosa, reported):
    answer_request(agent.ask(), rosa, arguments={"command": "rm -r build/x"})
    answer = agent.ask()
    right = {"input": answer.input}
    assert agent.report(**{**right, **reported}).effect == "ungated"
    assert UngatedRun.objects.get().client_call_id == "toolu_1"
    client_runs.expire_unreported(clock.now())
    assert call_of(answer).status == "outcome_unknown"
    assert agent.ask().decision == "deny"
    assert agent.report(**right).effect == "late"
    assert call_of(answer).status == "completed"
