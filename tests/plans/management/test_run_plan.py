"""Tests of `manage.py run_plan` and its exit codes."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from catalog.errors import MalformedJSON, TooLarge
from plans.actions.control import pause_plan, resume_plan
from plans.documents.files import read_document
from plans.management.commands import run_plan
from plans.models import Plan, Step
from plans.store.requesters import Requester
from plans.web.plan import overview
from tests.builders import approve, request_of, step, write_step

GOOD = """
goal: Say hello
steps:
  - step_id: 1
    description: Compose it
    tool: render_text
    parameters: {template: "since {day}", values: {day: 2022-01-01}}
    expected_key: greeting
"""


@pytest.fixture
def installation(transactional_db: None, catalog: None, workspace: Path, admin: User) -> None:
    """Tools, a workspace and a requester."""


def run(path: Path, *options: str) -> tuple[int, str, str]:
    """Run the command; return its exit code and output."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("run_plan", str(path), *options, stdout=out, stderr=err)
    except SystemExit as end:
        return int(str(end.code)), out.getvalue(), err.getvalue()
    except CommandError as end:
        return end.returncode, out.getvalue(), str(end)
    return 0, out.getvalue(), err.getvalue()


def file_of(folder: Path, text: str | dict[str, Any], name: str = "plan.json") -> Path:
    """Write a document."""
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


@pytest.mark.usefixtures("installation")
@pytest.mark.parametrize("address", ["", "https://tools.example"])
def test_plan_runs_to_its_end_with_exit_code_0(tmp_path, monkeypatch, settings, address):
    monkeypatch.setenv("TOOLGATE_URL", address)
    if not address:
        monkeypatch.delenv("TOOLGATE_URL")
    settings.TOOLGATE_URL = address or "http://127.0.0.1:8000"
    code, out, _ = run(file_of(tmp_path, GOOD, "plan.yaml"))
    assert (code, Plan.objects.get().status) == (0, "completed")
    lines = out.splitlines()
    assert lines[:2] == ["Say hello", f"{address}/plans/{Plan.objects.get().public_id}/"]
    assert any("Done" in line and line.endswith("Compose it") for line in lines)


@pytest.mark.usefixtures("installation")
def test_failed_plan_ends_with_exit_code_1(tmp_path):
    document = {"goal": "a", "steps": [step(1, "read_file", parameters={"path": "no.txt"})]}
    code, out, _ = run(file_of(tmp_path, document), "--wait")
    assert code == 1
    assert f"Step 1: {Step.objects.get().error}" in out.splitlines()[-1]


@pytest.mark.usefixtures("installation")
def test_waiting_plan_ends_with_exit_code_3(tmp_path):
    code, out, err = run(file_of(tmp_path, {"goal": "a", "steps": [write_step(1)]}))
    plan = Plan.objects.get()
    assert (code, plan.status) == (3, "in_progress")
    assert f"/approvals/?item={request_of(plan).public_id}" in out
    assert f"/plans/{plan.public_id}/" in err


@pytest.mark.usefixtures("installation")
def test_stored_plan_is_followed_by_id(tmp_path, admin, rosa):
    run(file_of(tmp_path, {"goal": "a", "steps": [write_step(1)]}))
    plan = Plan.objects.get()
    pause_plan(plan, by=Requester(admin))
    approve(plan, rosa)
    assert run(Path(plan.public_id))[0] == 3
    resume_plan(plan, by=Requester(admin))
    code, out, _ = run(Path(plan.public_id), "--wait", "--json")
    assert (code, json.loads(out)["status"]) == (0, "completed")
    assert run(Path("plan_none"))[0] == 2


@pytest.mark.usefixtures("installation")
@pytest.mark.parametrize(("owner", "name"), [(overview, "load_overview"), (run_plan.Command, "wait")])
def test_ctrl_c_leaves_plan_running(tmp_path, monkeypatch, owner, name):
    monkeypatch.setattr(owner, name, staticmethod(interrupted_once(getattr(owner, name))))
    code, _, err = run(file_of(tmp_path, {"goal": "a", "steps": [write_step(1)]}), "--wait")
    plan = Plan.objects.get()
    assert (code, plan.status) == (130, "in_progress")
    assert f"run_plan {plan.public_id} --wait" in err


def interrupted_once(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `act`, raising KeyboardInterrupt during its first call."""
    first = [KeyboardInterrupt]

    def act_at_last(*given: Any) -> Any:
        if first:
            raise first.pop()
        return act(*given)

    return act_at_last


@pytest.mark.usefixtures("installation")
def test_json_output_is_one_object(tmp_path):
    code, out, _ = run(file_of(tmp_path, GOOD, "plan.yml"), "--json")
    assert (code, json.loads(out)["status"]) == (0, "completed")
    code, out, _ = run(file_of(tmp_path, {"goal": "a", "steps": [step(1, "nothing")]}), "--json")
    assert (code, json.loads(out)["problems"][0]["code"]) == (2, "unknown_tool")


@pytest.mark.usefixtures("installation")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1"),
        ('{"goal": "a",\n"steps": [\n{"step_id": 1, "description": "b", "tool": "nothing"}]}', "line 3, steps.0.tool"),
        ("[]", "object"),
    ],
)
def test_invalid_plan_ends_with_exit_code_2(tmp_path: Path, text: str, said: str) -> None:
    code, _, err = run(file_of(tmp_path, text))
    assert code == 2
    assert said in err
    assert not Plan.objects.exists()


@pytest.mark.usefixtures("installation")
def test_requester_must_exist(tmp_path):
    code, out, err = run(file_of(tmp_path, GOOD, "plan.yaml"), "--user", "nobody")
    assert (code, out, "nobody" in err) == (2, "", True)
    assert run(tmp_path / "none.json")[0] == 2


def test_yaml_file_has_values_of_json_types(tmp_path):
    text = "\ufeffa: &x {on: NO, 200: [1]}\nb: *x\n"
    assert read_document(file_of(tmp_path, text, "plan.yaml"))[0] == {key: {"on": "NO", "200": [1]} for key in "ab"}
    for wrong in ("a: 1\na: 2", "a: .inf", f"a: {2**53}"):
        with pytest.raises(MalformedJSON):
            read_document(file_of(tmp_path, wrong, "plan.yaml"))


def test_file_size_is_limited_like_request_body(tmp_path):
    with pytest.raises(TooLarge):
        read_document(file_of(tmp_path, "x" * (1024 * 1024 + 1)))
    repeated = f"a: &a {'x' * 1000}\nb: [{'*a, ' * 1100}]"
    with pytest.raises(TooLarge):
        read_document(file_of(tmp_path, repeated, "plan.yaml"))
