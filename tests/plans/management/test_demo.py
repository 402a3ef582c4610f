"""Tests of `manage.py demo`."""

import json
import re
import socket
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate as sign_in
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from approvals.models import ApprovalRequest, Policy
from approvals.policies.services import end_policy
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.roles import roles_of
from catalog.access.tokens import authenticate_token
from catalog.inventory.sources import end_source, switchable_sources
from catalog.tools.registry import get_all_tools
from plans.demo import scenes
from plans.demo.people import PEOPLE
from plans.demo.policies import POLICIES
from plans.demo.sources import enable_shipped_sets
from plans.documents.checking import check_plan
from plans.executor.lifecycle import run_executor
from plans.management.commands import demo
from plans.models import Plan, Step
from tests.conftest import person

BRIEF = "reports/aapl-msft-fy2022.md"

pytestmark = pytest.mark.usefixtures("transactional_db", "catalog", "workspace")


@pytest.fixture(autouse=True)
def without_an_address(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Let the command set TOOLGATE_URL, and restore it afterwards."""
    monkeypatch.setenv("TOOLGATE_URL", "")
    monkeypatch.delenv("TOOLGATE_URL")
    settings.TOOLGATE_URL = "http://127.0.0.1:1"


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


def plan_of(document: str) -> Plan:
    """Return the only plan made from this document."""
    (scene,) = [scene for scene in scenes.SCENES if scene.document == document]
    return Plan.objects.get(goal=scene.plan.goal)


def approve(by: str) -> None:
    """Approve the pending request as this person."""
    request = ApprovalRequest.objects.get(status=RequestStatus.PENDING)
    decide(request, by=User.objects.get(username=by), decision=Decision(ReviewVerdict.APPROVE, request.digest))


def test_plans_reach_expected_states(workspace: Path, settings: Any) -> None:
    """The summary names all users, and other files in the workspace are kept."""
    (workspace / "notes.md").write_text("mine")
    output = run()
    assert plan_of("margins").status == "completed"
    assert plan_of("known").status == "completed"
    assert plan_of("known").steps.get(skipped=True).step_id == 1
    mistake = plan_of("mistake")
    assert mistake.status == "failed"
    assert [step.status for step in mistake.steps.all()] == ["completed", "failed", "pending", "completed"]
    assert "fiscal_year" in mistake.steps.get(step_id=2).error
    brief = plan_of("brief")
    assert brief.status == "in_progress"
    assert brief.steps.get(waiting_for="approval").tool == "write_file"
    assert all(each.username in output for each in PEOPLE)
    pasted = dict(re.findall(r"^  ([A-Z]+)=(\S+)$", output, re.MULTILINE))
    token = authenticate_token(pasted["AGENT"])
    assert token is not None and token.kind == "agent"
    assert pasted["API"] == f"{settings.TOOLGATE_URL}/api/v1"
    assert (workspace / "notes.md").read_text() == "mine"
    assert_request_shows_what_the_brief_replaces(workspace)


def assert_request_shows_what_the_brief_replaces(workspace: Path) -> None:
    """Check that the preview compares the file on disk with computed figures."""
    preview = ApprovalRequest.objects.get(status=RequestStatus.PENDING).rounds.get().preview_json or {}
    assert preview["before"] == (workspace / BRIEF).read_text()
    assert "| Apple     | $394.3 B |  +7.8% |" in preview["after"]
    assert "| Microsoft | $198.3 B | +18.0% |" in preview["after"]
    assert "| Microsoft |        ? |" in preview["before"]


@pytest.mark.slow
def test_approval_completes_brief_and_next_run_renews_it(workspace: Path) -> None:
    run()
    approve("rosa")
    brief = plan_of("brief")
    with run_executor():
        scenes.wait_until_at_rest([brief])
    assert brief.status == "completed"
    values = {item.key: item.value_json for item in brief.memory.filter(type="value")}
    assert values["brief_on_disk"] == values["brief"] == (workspace / BRIEF).read_text()
    run()
    assert ApprovalRequest.objects.filter(status=RequestStatus.PENDING).count() == 1
    assert "Draft" in (workspace / BRIEF).read_text()
    assert Plan.objects.count() == len(scenes.SCENES) + 1


@pytest.mark.slow
def test_json_output_has_working_sign_ins_and_tokens() -> None:
    output = run_for_json()
    assert output.keys() == {"url", "users", "tokens"}
    for each in output["users"]:
        user = sign_in(username=each["username"], password=each["password"])
        assert isinstance(user, User)
        assert sorted(roles_of(user)) == each["roles"]
    assert output["tokens"].keys() == {"agent", "operator", "reviewer"}
    for each in output["tokens"].values():
        token = authenticate_token(each["token"])
        assert token is not None
        assert (token.user.username, token.scopes) == (each["username"], each["scopes"])


@pytest.mark.slow
def test_second_run_renews_passwords_and_tokens_only() -> None:
    first, ids = run_for_json(), sorted(Plan.objects.values_list("public_id", flat=True))
    second = run_for_json()
    assert sorted(Plan.objects.values_list("public_id", flat=True)) == ids
    assert User.objects.count() == len(first["users"])
    for before, after in zip(first["users"], second["users"], strict=True):
        assert sign_in(username=before["username"], password=before["password"]) is None
        assert sign_in(username=after["username"], password=after["password"]) is not None
    assert all(authenticate_token(each["token"]) is None for each in first["tokens"].values())
    assert all(authenticate_token(each["token"]) is not None for each in second["tokens"].values())


def test_password_of_other_user_is_not_reset() -> None:
    person("admin", "administrator")
    with pytest.raises(CommandError, match="'admin'"):
        run()
    assert sign_in(username="admin", password="secret-admin") is not None
    assert not User.objects.filter(username="ada").exists()
    assert not Plan.objects.exists()


def test_demo_documents_have_no_problems(catalog: None) -> None:
    for scene in scenes.SCENES:
        problems = check_plan(scene.plan, get_all_tools())
        assert {each.code for each in problems} <= {"waits_for_approval"}


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


def test_address_uses_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "make_plans", lambda token: None)
    assert json.loads(run("--json", "--port", "8123"))["url"] == "http://127.0.0.1:8123"


@pytest.mark.slow
def test_shipped_sets_are_enabled_unless_an_administrator_disabled_one(admin: User) -> None:
    sets = switchable_sources().filter(kind="python")
    disabled = sets.get(name="catalog.toolsets.text")
    sets.update(enabled=False)
    end_source(disabled, by=admin)
    enable_shipped_sets()
    assert [source.name for source in sets if not source.enabled] == ["catalog.toolsets.text"]


def test_policies_are_created_once() -> None:
    run()
    names = [policy.name for policy in Policy.objects.order_by("order")]
    assert names[:3] == [document["name"] for document in POLICIES]
    assert len(names) == 6
    end_policy(Policy.objects.get(name=names[1]), by=User.objects.get(username="admin"))
    run()
    assert Policy.objects.count() == 6
    assert Policy.objects.get(name=names[1]).ended_at is not None
