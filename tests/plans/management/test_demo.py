"""`manage.py demo`: its plans run for real and come to rest where they should, and a second run renews the keys."""

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
from catalog.tools.registry import get_all_tools
from plans.demo import scenes
from plans.demo.people import PEOPLE
from plans.demo.policies import POLICIES
from plans.documents.checking import check_plan
from plans.executor.lifecycle import run_executor
from plans.management.commands import demo
from plans.models import Plan, Step
from tests.conftest import person

BRIEF = "reports/aapl-msft-fy2022.md"

pytestmark = pytest.mark.usefixtures("transactional_db", "catalog", "workspace")


@pytest.fixture(autouse=True)
def without_an_address(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Let the command find its address by itself, and take it back afterwards."""
    monkeypatch.setenv("TOOLGATE_URL", "")
    monkeypatch.delenv("TOOLGATE_URL")
    settings.TOOLGATE_URL = "http://127.0.0.1:1"


def run(*flags: str) -> str:
    """Run the command without serving and return what it printed."""
    out = StringIO()
    call_command("demo", "--no-serve", *flags, stdout=out)
    return out.getvalue()


def run_for_json() -> dict[str, Any]:
    """Run the command with --json and return what its one line says."""
    (line,) = run("--json").splitlines()
    said: dict[str, Any] = json.loads(line)
    return said


def plan_of(document: str) -> Plan:
    """Return the only plan made from this document."""
    (scene,) = [scene for scene in scenes.SCENES if scene.document == document]
    return Plan.objects.get(goal=scene.plan.goal)


def approve(by: str) -> None:
    """Approve what waits, as this person."""
    request = ApprovalRequest.objects.get(status=RequestStatus.PENDING)
    decide(request, by=User.objects.get(username=by), decision=Decision(ReviewVerdict.APPROVE, request.digest))


def test_every_plan_comes_to_rest_where_it_should(workspace: Path) -> None:
    """One completes, one skips a step, one fails on a value that a reference brought, one waits for a person.

    The summary names everyone, and files of the workspace that are not the demo's stay.
    """
    (workspace / "notes.md").write_text("mine")
    said = run()
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
    assert all(each.username in said for each in PEOPLE)
    assert (workspace / "notes.md").read_text() == "mine"
    assert_request_shows_what_the_brief_replaces(workspace)


def assert_request_shows_what_the_brief_replaces(workspace: Path) -> None:
    """Check that the preview compares the draft on disk with figures that were looked up and computed."""
    shown = ApprovalRequest.objects.get(status=RequestStatus.PENDING).rounds.get().preview_json or {}
    assert shown["before"] == (workspace / BRIEF).read_text()
    assert "| Apple     | $394.3 B |  +7.8% |" in shown["after"]
    assert "| Microsoft | $198.3 B | +18.0% |" in shown["after"]
    assert "| Microsoft |        ? |" in shown["before"]


@pytest.mark.slow
def test_an_approval_lets_the_brief_finish(workspace: Path) -> None:
    """The file holds what was approved, the step after it read it back, and the next run makes a new request."""
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
def test_json_is_one_line_with_sign_ins_and_tokens_that_work() -> None:
    """Passwords sign in, roles are held, tokens belong to whom they say."""
    said = run_for_json()
    assert said.keys() == {"url", "users", "tokens"}
    for each in said["users"]:
        user = sign_in(username=each["username"], password=each["password"])
        assert isinstance(user, User)
        assert sorted(roles_of(user)) == each["roles"]
    assert said["tokens"].keys() == {"agent", "operator", "reviewer"}
    for each in said["tokens"].values():
        token = authenticate_token(each["token"])
        assert token is not None
        assert (token.user.username, token.scopes) == (each["username"], each["scopes"])


@pytest.mark.slow
def test_a_second_run_renews_the_keys_and_keeps_the_rest() -> None:
    """What waits goes on waiting; passwords and tokens of the first run are dead."""
    first, ids = run_for_json(), sorted(Plan.objects.values_list("public_id", flat=True))
    second = run_for_json()
    assert sorted(Plan.objects.values_list("public_id", flat=True)) == ids
    assert User.objects.count() == len(first["users"])
    for before, after in zip(first["users"], second["users"], strict=True):
        assert sign_in(username=before["username"], password=before["password"]) is None
        assert sign_in(username=after["username"], password=after["password"]) is not None
    assert all(authenticate_token(each["token"]) is None for each in first["tokens"].values())
    assert all(authenticate_token(each["token"]) is not None for each in second["tokens"].values())


def test_somebody_elses_password_is_never_reset() -> None:
    """On a database with an admin of its own nothing is changed."""
    person("admin", "administrator")
    with pytest.raises(CommandError, match="'admin'"):
        run()
    assert sign_in(username="admin", password="secret-admin") is not None
    assert not User.objects.filter(username="ada").exists()
    assert not Plan.objects.exists()


def test_the_documents_have_no_problems(catalog: None) -> None:
    """Every document of the demo passes the check that any submitted plan has to pass."""
    for scene in scenes.SCENES:
        problems = check_plan(scene.plan, get_all_tools())
        assert {each.code for each in problems} <= {"waits_for_approval"}


def test_a_taken_port_is_said_before_anything_is_reset() -> None:
    """A demo that is being served keeps its passwords; the port that is advised is free."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CommandError) as refusal:
            call_command("demo", port=taken.getsockname()[1])
        advised = re.findall(r"demo --port (\d+)", str(refusal.value))
        assert [demo.is_free(int(port)) for port in advised] == [True]
    assert not User.objects.exists()
    assert not Step.objects.exists()


def test_the_address_is_that_of_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is served at once or later."""
    monkeypatch.setattr(demo, "make_plans", lambda token: None)
    assert json.loads(run("--json", "--port", "8123"))["url"] == "http://127.0.0.1:8123"


@pytest.mark.slow
def test_policies_are_shown_once_and_left_alone_afterwards() -> None:
    """Whoever ends or changes one keeps it so."""
    run()
    names = [policy.name for policy in Policy.objects.order_by("order")]
    assert names[:3] == [document["name"] for document in POLICIES]
    assert len(names) == 6
    end_policy(Policy.objects.get(name=names[1]), by=User.objects.get(username="admin"))
    run()
    assert Policy.objects.count() == 6
    assert Policy.objects.get(name=names[1]).ended_at is not None
