"""Released coding agents against a served Toolgate: no command runs that was not allowed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from django.contrib.auth.models import User

from approvals.policies.shipped import add_coding_agent_policies
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.models import ApiToken, Call, ClientRun, UngatedRun
from catalog.states import CallStatus
from plans.client_setup.check import CheckFailed, check
from plans.client_setup.clients import CODING_AGENTS, ClientWithHooks, Codex, OpenCode
from plans.client_setup.scripted_model import ScriptedUse
from plans.live.long_polling import WaitForCall
from plans.models import Plan
from tests.builders import approve, reject, request_of
from tests.http_server import serving
from tests.npm import installed_modules
from tests.plans.client_setup.answers import Answer, AnsweringServer
from tests.plans.client_setup.released import PROGRAMS, SECONDS, Home, home_in
from tests.plans.mcp.conftest import serving_mcp
from tests.recording_proxy import recording
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

CLIENTS = Path(__file__).parent / "clients"
HELD_SECONDS = 70
"""Longer than any client waits for a hook by its own default but one, and than a proxy's usual minute."""


@pytest.fixture(scope="module")
def modules(request: pytest.FixtureRequest) -> Path:
    """The installed npm packages, kept in pytest's cache until their versions change."""
    return installed_modules(request.config.cache, CLIENTS, "coding-agents-npm")


@pytest.fixture(params=list(CODING_AGENTS))
def home(request: pytest.FixtureRequest, modules: Path, tmp_path: Path) -> Home:
    if not (modules / PROGRAMS[request.param]).exists():
        pytest.skip(f"There is no {request.param} for this machine.")
    return home_in(tmp_path / "home", request.param, modules)


def held_run() -> Plan | None:
    run = ClientRun.objects.filter(call__status=CallStatus.HELD).first()
    return Plan.objects.latest("pk") if run is not None else None


def edit(plan: Plan, by: User) -> None:
    """Approve with another file to write."""
    request = request_of(plan)
    arguments = dict(request.call.arguments_json)
    name = next(name for name, value in arguments.items() if isinstance(value, str) and "ran >" in value)
    arguments[name] = re.sub(r"> .*", "> edited", arguments[name])
    decide(request, by=by, decision=Decision(ReviewVerdict.APPROVE, request.digest, arguments=arguments))


@pytest.mark.parametrize(
    "case",
    [
        (approve, ["asked"], CallStatus.COMPLETED),
        (edit, ["edited"], CallStatus.COMPLETED),
        (reject, [], CallStatus.FAILED),
    ],
    ids=["approved", "edited", "rejected"],
)
def test_what_a_person_decides_happens(
    home: Home,
    url: str,
    token: tuple[ApiToken, str],
    rosa: User,
    case: tuple[Callable[[Plan, User], object], list[str], CallStatus],
) -> None:
    act, ran, status = case
    home.connect(url, token[1])
    with home.running("asked"):
        act(eventually(held_run, SECONDS, "A held call"), rosa)
    assert home.ran == ran, home.told
    run = ClientRun.objects.get()
    assert run.call.status == status
    assert UngatedRun.objects.count() == 0


def test_a_held_call_waits_for_its_decision(home: Home, url: str, token: tuple[ApiToken, str], rosa: User) -> None:
    home.connect(url, token[1])
    with home.running("asked") as process:
        plan = eventually(held_run, SECONDS, "A held call")
        Event().wait(HELD_SECONDS)  # the time is what is tested
        assert process.poll() is None
        assert home.ran == []
        approve(plan, rosa)
    assert home.ran == ["asked"], home.told


@pytest.mark.usefixtures("stage")
@pytest.mark.parametrize("home", ["claude-code"], indirect=True)
def test_a_held_mcp_call_reports_progress_while_the_client_waits(
    home: Home, url: str, token: tuple[ApiToken, str], rosa: User
) -> None:
    """Four reports arrive while it waits, and then the result of the approved call, in answer to the same request.

    Codex is left out: its model would have to search for the tool first.
    """
    with recording(int(url.rpartition(":")[2])) as wire:
        home.connect(f"http://127.0.0.1:{wire.port}", token[1])
        home.turns = [[ScriptedUse("mcp__toolgate__dangerous", {"value": "approved-and-run"})]]
        with home.running() as process:
            plan = eventually(lambda: Plan.objects.first(), SECONDS, "A held call")
            eventually(lambda: (found := wire.times_of(b"notifications/progress"))[3:] and found, SECONDS, "Progress")
            assert process.poll() is None
            approve(plan, rosa)
    assert Call.objects.get().status == CallStatus.COMPLETED
    assert "approved-and-run" in home.told.rpartition("tool_result")[2], home.told


@pytest.mark.parametrize("name", ["down", "500", "slow", "empty", "no content", "object", "html", "cut"])
def test_a_server_in_doubt_lets_nothing_run(home: Home, name: str) -> None:
    answers = {
        "500": Answer(b"{}", status=500),
        "slow": Answer(b"{}", waits=20),
        "empty": Answer(b""),
        "no content": Answer(b"", status=204),
        "object": Answer(b"{}"),
        "html": Answer(b"<html></html>", content_type="text/html"),
        "cut": Answer(b"{}", cut=1),
    }
    with serving(AnsweringServer(answers)) as server:
        home.connect("http://127.0.0.1:9" if name == "down" else server.url(name), "tg_of-the-agent")
        for path in (home.agent.wrapper, home.folder / ".config/opencode/plugin/toolgate.js"):
            if path.exists():
                path.write_text(re.sub(r"^((?:const )?SECONDS =) 590", r"\1 5", path.read_text(), flags=re.MULTILINE))
        home.run("asked")
    assert home.ran == []
    assert home.model is not None
    assert len(home.model.requests) > 1  # the client made the call, and told the model that it was refused


def test_a_hook_killed_while_it_waits_lets_nothing_run(home: Home, url: str, token: tuple[ApiToken, str]) -> None:
    if home.agent.slug == "opencode":
        pytest.skip("opencode asks in its own process.")
    home.connect(url, token[1])
    with home.running("asked"):
        eventually(held_run, SECONDS, "A held call")
        home.kill_hook()
    assert home.ran == []


def test_a_server_that_ends_while_it_holds_lets_nothing_run(
    home: Home, executor: object, pages_and_rest: WaitForCall, token: tuple[ApiToken, str]
) -> None:
    with serving_mcp(others=pages_and_rest) as mcp:
        home.connect(mcp.removesuffix("/mcp"), token[1])
        running = home.running("asked")
        running.__enter__()
        eventually(held_run, SECONDS, "A held call")
    running.__exit__(None, None, None)
    assert home.ran == []


def test_the_check_finds_the_client_armed(home: Home, url: str, token: tuple[ApiToken, str]) -> None:
    home.connect(url, token[1])
    checked = check(home.agent)
    assert checked.held
    assert ClientRun.objects.get().session == checked.name


@pytest.mark.parametrize("home", ["codex"], indirect=True)
def test_codex_is_judged_in_the_directory_of_its_session(
    home: Home, url: str, token: tuple[ApiToken, str], admin: User, rosa: User
) -> None:
    """With the shipped policies a read in its directory runs unasked; elsewhere, as its model chose, it is held."""
    add_coding_agent_policies(by=admin)
    home.connect(url, token[1])
    home.turns = [
        [ScriptedUse("exec_command", {"cmd": "echo here > asked"})],
        [ScriptedUse("exec_command", {"cmd": "cat asked", "workdir": "/"})],
    ]
    with home.running():
        reject(eventually(held_run, SECONDS, "A held call"), rosa)
    assert home.ran == ["asked"]
    statuses = ClientRun.objects.order_by("pk").values_list("call__status", flat=True)
    assert list(statuses) == [CallStatus.COMPLETED, CallStatus.FAILED]


def take_out_the_question(home: Home) -> None:
    """Leave the client without the hook that asks, but with the one that reports; Codex does not trust the first."""
    agent = home.agent
    if isinstance(agent, OpenCode):
        agent.plugin.write_text(agent.plugin.read_text().replace('"tool.execute.before":', '"nothing":'))
    elif isinstance(agent, Codex):
        config = agent.config_file.read_text()
        agent.config_file.write_text(re.sub(r"(pre_tool_use.*\n)trusted_hash", r"\1enabled = true #", config))
    elif isinstance(agent, ClientWithHooks):
        settings = json.loads(agent.hooks_file.read_text())
        del settings["hooks"][agent.asks]
        agent.hooks_file.write_text(json.dumps(settings))


def test_without_its_hook_the_client_is_not_armed(home: Home, url: str, token: tuple[ApiToken, str]) -> None:
    """The command runs: nothing but the check, the session's page and the alarm can show it."""
    home.connect(url, token[1])
    take_out_the_question(home)
    with pytest.raises(CheckFailed):
        check(home.agent)
    home.run("asked")
    assert home.ran == ["asked"]
    eventually(UngatedRun.objects.exists, what="The alarm")
