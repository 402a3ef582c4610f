"""Tests of `manage.py demo`."""

import json
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.contrib.auth import authenticate as sign_in
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from approvals.models import ApprovalRequest, AuditEntry, Policy
from approvals.policies.services import end_policy
from approvals.queue.precedents import precedents_for
from approvals.requests.deadlines import expire_due
from approvals.requests.text_warnings import is_deceptive
from approvals.states import RequestStatus
from catalog.access.roles import roles_of
from catalog.access.tokens import authenticate_token
from catalog.core import clock
from catalog.inventory.sources import end_source, switchable_sources
from catalog.models import Call
from catalog.tools.registry import get_all_tools
from plans.demo import installation
from plans.demo.people import PEOPLE
from plans.demo.policies import POLICIES
from plans.demo.sources import enable_shipped_sets
from plans.demo.stories import DRAFT, past_stories, statement_run, todays_stories
from plans.demo.timeline import Timeline
from plans.documents.checking import check_plan
from plans.engine.cancellation import end_overdue_plans
from plans.management.commands import demo
from plans.models import Plan, Step
from tests.builders import make_plan, step
from tests.conftest import person
from tests.invariants import assert_invariants

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("transactional_db", "catalog", "workspace")


@pytest.fixture(autouse=True)
def without_an_address(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Let the command set TOOLGATE_URL, and restore it afterwards."""
    monkeypatch.setenv("TOOLGATE_URL", "")
    monkeypatch.delenv("TOOLGATE_URL")
    settings.TOOLGATE_URL = "http://127.0.0.1:1"


@pytest.fixture
def without_stories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the plans out, and the program that serves the demo's MCP source."""
    monkeypatch.setattr(installation, "_create_history", lambda now: installation._set_up_people())
    monkeypatch.setattr(installation, "make_sources", lambda: "")


def seeded() -> Random:
    return Random(1)  # noqa: S311 - the same stories each time


def run(*flags: str) -> str:
    """Run the command without serving and return what it printed."""
    out = StringIO()
    call_command("demo", "--no-serve", *flags, stdout=out)
    return out.getvalue()


def run_for_json() -> dict[str, Any]:
    """Run the command with --json and return the parsed output."""
    (line,) = run("--json").splitlines()
    said: dict[str, Any] = json.loads(line)
    return said


def waiting_by_tool() -> Iterator[tuple[str, ApprovalRequest]]:
    """Yield the requests that wait, each with its tool."""
    pending = ApprovalRequest.objects.filter(status=RequestStatus.PENDING)
    for request in pending.select_related("call", "tool_version", "policy_revision"):
        yield request.call.tool_name, request


@pytest.mark.db
def test_story_is_told_once(workspace: Path, settings: Any) -> None:
    """The first run makes all that the pages of a demo show, free of contradictions; a second run changes nothing."""
    (workspace / "notes.md").write_text("mine")
    output = run()
    assert all(each.username in output for each in PEOPLE)
    pasted = dict(re.findall(r"^  ([A-Z]+)=(\S+)$", output, re.MULTILINE))
    token = authenticate_token(pasted["AGENT"])
    assert token is not None and token.kind == "agent"
    assert pasted["API"] == f"{settings.TOOLGATE_URL}/api/v1"
    assert (workspace / "notes.md").read_text() == "mine"
    assert_requests_of_all_kinds(workspace)
    assert_plans_of_all_kinds()
    assert_history_of_two_weeks()
    assert_invariants()
    later = clock.now() + timedelta(days=20)
    assert not expire_due(later) and not end_overdue_plans(later)
    rows = [set(model.objects.values_list("public_id", flat=True)) for model in (Plan, Call, ApprovalRequest)]
    run()
    assert [set(model.objects.values_list("public_id", flat=True)) for model in (Plan, Call, ApprovalRequest)] == rows
    assert AuditEntry.objects.filter(action=installation.CREATED).count() == 1


def assert_requests_of_all_kinds(workspace: Path) -> None:
    waiting = list(waiting_by_tool())
    tools = dict(waiting)
    assert {"write_file", "update_prices", "send_payment", "send_mail", "connect_webhook"} < tools.keys()
    preview = tools["write_file"].rounds.get().preview_json or {}
    assert preview["before"] == (workspace / DRAFT).read_text()
    assert "| Apple     | $394.3 B |  +7.8% |" in preview["after"]
    assert "| Microsoft |        ? |" in preview["before"]
    assert tools["send_payment"].policy_revision.stages == POLICIES[0]["stages"]
    assert "$secret" in tools["connect_webhook"].call.arguments
    assert "whsec" not in tools["connect_webhook"].call.arguments
    mails = [request for tool, request in waiting if tool == "send_mail"]
    assert max(len(request.call.arguments_json["to"]) for request in mails) > 20
    assert any(precedent.alike for request in mails for precedent in precedents_for(request))
    deceptive = [each for _, each in waiting if is_deceptive(each.call.arguments, each.call.reason)]
    assert [request.call.tool_name for request in deceptive] == ["propose_file_edit"]


def assert_plans_of_all_kinds() -> None:
    plans = Plan.objects.filter(kind=Plan.Kind.PLAN)
    assert plans.filter(steps__waiting_for="input", steps__questions__answered_at=None).exists()
    assert plans.filter(status="completed", steps__skipped=True).exists()
    assert plans.filter(status="cancelled").exists()
    failed = plans.filter(status="failed").latest("created_at")
    assert [each.status for each in failed.steps.order_by("step_id")] == ["completed", "failed", "pending", "completed"]
    running = plans.latest("id")
    assert (running.status, running.steps.count()) == ("in_progress", 30)


def assert_history_of_two_weeks() -> None:
    days = {moment.date() for moment in Plan.objects.values_list("created_at", flat=True)}
    assert len(days) >= 10
    assert max(days) - min(days) >= timedelta(days=12)
    assert Call.objects.count() > 150
    ends = set(ApprovalRequest.objects.values_list("status", flat=True))
    assert ends >= {"consumed", "rejected", "responded", "superseded", "expired", "withdrawn"}
    entry = AuditEntry.objects.get(action=installation.CREATED)
    assert entry.details_json["note"] == installation.NOTE
    assert not AuditEntry.objects.filter(action="approval.opened", seq__gt=entry.seq).exists()


def test_stories_are_the_same_each_time() -> None:
    def told() -> list[str]:
        stories = [*past_stories(NOON, seeded()), *todays_stories(NOON)]
        return [f"{each.begins} {each.tool} {each.document} {each.answers}" for each in stories]

    assert told() == told()


def test_plans_of_others_are_refused(ada: User) -> None:
    plan = make_plan(ada, step(1))
    with pytest.raises(CommandError, match="plans or calls of its own"):
        run()
    assert list(Plan.objects.all()) == [plan]
    assert not User.objects.filter(username="rosa").exists()


def test_an_interrupted_first_run_is_told_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Timeline) -> None:
        make_plan(User.objects.get(username="ada"), step(1))
        raise KeyboardInterrupt

    monkeypatch.setattr(Timeline, "tell", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    with pytest.raises(CommandError, match="interrupted"):
        run()


@pytest.mark.usefixtures("without_stories")
def test_no_stories_beside_a_running_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ticker would expire what happened long ago."""
    monkeypatch.setattr(installation, "live_executors", lambda: [object()])
    err = StringIO()
    call_command("demo", "--no-serve", stdout=StringIO(), stderr=err)
    assert "Stop it" in err.getvalue()
    assert installation.demo_created_at() is None


@pytest.mark.usefixtures("without_stories")
def test_second_run_renews_passwords_and_tokens() -> None:
    first, second = run_for_json(), run_for_json()
    assert User.objects.count() == len(first["users"])
    assert second.keys() == {"url", "users", "tokens"}
    assert second["tokens"].keys() == {"agent", "operator", "reviewer"}
    for before, after in zip(first["users"], second["users"], strict=True):
        assert sign_in(username=before["username"], password=before["password"]) is None
        user = sign_in(username=after["username"], password=after["password"])
        assert isinstance(user, User)
        assert sorted(roles_of(user)) == after["roles"]
    assert all(authenticate_token(each["token"]) is None for each in first["tokens"].values())
    for each in second["tokens"].values():
        token = authenticate_token(each["token"])
        assert token is not None
        assert (token.user.username, token.scopes) == (each["username"], each["scopes"])


def test_people_of_ones_own_get_no_second_administrator() -> None:
    """The password of the demo's is printed; one's own 'admin' keeps theirs."""
    person("admin", "administrator")
    with pytest.raises(CommandError, match="people of its own"):
        run()
    assert sign_in(username="admin", password="secret-admin") is not None
    assert not User.objects.filter(username="ada").exists()
    assert not Plan.objects.exists()


def test_demo_documents_have_no_problems(catalog: None) -> None:
    stories = [*past_stories(NOON, seeded()), *todays_stories(NOON)]
    documents = [each.document for each in stories if each.document is not None]
    for document in (*documents, statement_run(NOON.date())):
        problems = check_plan(document, get_all_tools())
        assert {each.code for each in problems if each.severity != "info"} <= {"waits_for_approval"}


def test_port_in_use_is_reported_before_reset() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CommandError) as refusal:
            call_command("demo", port=taken.getsockname()[1])
        advised = re.findall(r"demo --port (\d+)", str(refusal.value))
        assert [demo.is_free(int(port)) for port in advised] == [True]
    assert not User.objects.exists()
    assert not Step.objects.exists()


@pytest.mark.usefixtures("without_stories")
def test_address_uses_port() -> None:
    assert json.loads(run("--json", "--port", "8123"))["url"] == "http://127.0.0.1:8123"


@pytest.mark.slow
def test_shipped_sets_are_enabled_unless_an_administrator_disabled_one(admin: User) -> None:
    sets = switchable_sources().filter(kind="python")
    disabled = sets.get(name="catalog.toolsets.text")
    sets.update(enabled=False)
    end_source(disabled, by=admin)
    enable_shipped_sets()
    assert [source.name for source in sets if not source.enabled] == ["catalog.toolsets.text"]


@pytest.mark.usefixtures("without_stories")
def test_policies_are_created_once() -> None:
    run()
    names = [policy.name for policy in Policy.objects.order_by("order")]
    assert names[:3] == [document["name"] for document in POLICIES]
    assert len(names) == 6
    end_policy(Policy.objects.get(name=names[1]), by=User.objects.get(username="admin"))
    run()
    assert Policy.objects.count() == 6
    assert Policy.objects.get(name=names[1]).ended_at is not None


def test_clock_runs_again_after_the_stories(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(installation, "past_stories", fail)
    with pytest.raises(TimeoutError):
        run()
    assert not clock.is_set()
