"""The check of a set-up: the real client, with its own configuration, is made to run a canary.

The scripted model tells the client to run a command that writes a file. Toolgate must be asked about it; the check
withdraws the request, and the client must not run it. It costs nothing and reaches no model.

Everything is read back over REST with the agent's own token, so the check runs on the agent's machine, wherever the
server is. Beside the server's database it also sees refusals that leave no call, and records the check in the session.
"""

import json
import secrets
import subprocess
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from catalog.core import clock
from catalog.models import ApiToken
from plans.client_setup.clients import ClientWithHooks, Codex, CodingAgent
from plans.client_setup.codex_hooks import TRUSTED, NoAnswer, list_hooks
from plans.client_setup.configuration import NotChanged
from plans.client_setup.headless import headless_run, shell_use
from plans.client_setup.scripted_model import ScriptedModel, scripted_model
from plans.client_setup.server import Server, ServerProblem
from plans.client_setup.tokens import SCOPES, check_token_there, token_if_here
from plans.coding_agents.sessions import note_check
from plans.models import ClientSession
from plans.store.requesters import Requester
from toolgate.places import COMMAND

SECONDS = 240
"""Time after which the client is stopped; opencode installs its plugins' packages at its first start."""
POLL_SECONDS = 0.5
REPORT_SECONDS = 20
"""Time for the report of a canary that was allowed and ran."""
NEWEST_SESSIONS = 10
UNFINISHED = ("running", "waiting")


class CheckFailed(Exception):
    """The client does not ask first, as far as the check can see; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The canary was asked about in the session `name`.

    `held` is False where a policy or a grant allowed it, and it ran and was reported; `refused` is True where a policy
    or a limit refused it at once. `page` is the session's address, empty if it has no call. `noted` says that the
    check is recorded at the server.
    """

    name: str
    page: str
    held: bool
    refused: bool
    noted: bool


def check(agent: CodingAgent, url: str | None = None) -> Checked:
    """Send the canary through the client, which must ask the server at `url`. Raises CheckFailed."""
    stored = agent.stored_setup()
    if stored is None:
        raise CheckFailed(f"{agent.label} is not set up: run `{COMMAND} connect {agent.slug}`.")
    if url is not None and url != stored.url:
        raise CheckFailed(
            f"{agent.label} is set up for {stored.url}, not for {url}: run "
            f"`{COMMAND} connect {agent.slug} --url {url}`."
        )
    program = agent.find_program()
    if program is None:
        raise CheckFailed(f"There is no command {agent.program}. Install {agent.label}, or mend PATH.")
    server = Server(stored.url, stored.token, agent.stored_route())
    try:
        agent.check_obstacles()
        token_id = check_token_there(server, SCOPES, f"in {agent.settings_file}")
    except NotChanged as obstacle:
        raise CheckFailed(str(obstacle)) from None
    check_entries(agent, program)
    return _Canary(agent, program, server, token_id).run()


def check_entries(agent: CodingAgent, program: str) -> None:
    """Raise CheckFailed if an entry of the hooks is gone, or if Codex would skip it."""
    if isinstance(agent, ClientWithHooks):
        missing = agent.missing_events()
        if missing:
            raise CheckFailed(
                f"The hook {missing[0]} is not in {agent.hooks_file}: run `{COMMAND} connect {agent.slug}`."
            )
    if isinstance(agent, Codex):
        check_trust(agent, program)


def check_trust(codex: Codex, program: str) -> None:
    """Raise CheckFailed unless Codex itself lists Toolgate's hook as enabled and trusted."""
    try:
        hooks = list_hooks(program, codex.home, codex.environment)
    except NoAnswer as reason:
        raise CheckFailed(str(reason)) from None
    own = [hook for hook in hooks if str(codex.wrapper) in str(hook.get("command"))]
    if not any(hook.get("eventName") == "preToolUse" for hook in own):
        raise CheckFailed(f"Codex does not list the hook: run `{COMMAND} connect codex`.")
    for hook in own:
        if not hook.get("enabled") or hook.get("trustStatus") not in TRUSTED:
            raise CheckFailed(
                f"Codex does not trust the hook {hook.get('eventName')}, and skips it without a word. Run "
                f"`{COMMAND} connect codex` again, or trust it in Codex with /hooks."
            )


@dataclass
class _CallsOfCanary:
    """The calls about the canary, as the server shows them: by id, each with the session that it was made in."""

    server: Server
    token_id: int
    mark: str
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    session: dict[str, Any] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def look(self) -> None:
        """Read the calls again, or look for the first in the newest sessions of the token. Raises ServerProblem."""
        for name in list(self.calls):
            self.calls[name] = self.server.get(f"calls/{name}/")
        if self.calls:
            return
        newest = self.server.get("sessions/", token=self.token_id, page_size=NEWEST_SESSIONS)["results"]
        for row in newest:
            if f"{row['id']} {row['last_active_at']}" in self._seen:
                continue
            session = self.server.get(f"sessions/{row['id']}/")
            for made in session["calls"]:
                if made["id"] in self._seen:
                    continue
                call = self.server.get(f"calls/{made['id']}/")
                self._seen.add(made["id"])
                if self.mark in json.dumps(call["arguments"]):
                    self.calls[made["id"]], self.session = call, session
            self._seen.add(f"{row['id']} {row['last_active_at']}")

    def withdraw(self) -> None:
        """Withdraw each request that waits; one that somebody decided at this moment stays decided."""
        for call in self.calls.values():
            if call["status"] == "waiting" and call["approval"] is not None:
                reason = {"comment": "Check of the client by the command connect."}
                self.server.request("POST", f"approvals/{call['approval']['id']}/withdraw/", reason)

    @property
    def allowed(self) -> bool:
        return any(call["started_at"] is not None for call in self.calls.values())

    @property
    def ended(self) -> bool:
        return all(call["status"] not in UNFINISHED for call in self.calls.values())


class _Canary:
    """One run of the client with the canary."""

    def __init__(self, agent: CodingAgent, program: str, server: Server, token_id: int) -> None:
        self.agent, self.program = agent, program
        name = f"toolgate-canary-{secrets.token_hex(8)}"
        self.command = f"echo canary > {name}"
        self.name = name
        self.found = _CallsOfCanary(server, token_id, name)

    def run(self) -> Checked:
        started = clock.now()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            work = folder / "work"
            work.mkdir()
            with scripted_model([[shell_use(self.agent.slug, self.command)]]) as model:
                output = self._run_client(model, folder, work)
            has_gone_on = len(model.requests) > 1
            return self._judge(started, ran=(work / self.name).exists(), has_gone_on=has_gone_on, output=output)

    def _run_client(self, model: ScriptedModel, folder: Path, work: Path) -> str:
        """Run the client until it ends, and withdraw what Toolgate holds for it; return the end of its output."""
        run = headless_run(self.agent, self.program, model.url, folder)
        path, ends = folder / "output", monotonic() + SECONDS
        with path.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - the client that the person has installed
                run.command,
                cwd=work,
                env=run.environment | {"PWD": str(work)},  # opencode takes its folder from here
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                while process.poll() is None and monotonic() < ends:
                    self._look_and_withdraw()
                    sleep(POLL_SECONDS)
            finally:
                process.kill()
                process.wait()
                self._look_and_withdraw()
        return path.read_text(encoding="utf-8", errors="replace")[-600:].strip()

    def _look_and_withdraw(self) -> None:
        try:
            self.found.look()
            self.found.withdraw()
        except ServerProblem as problem:  # it may answer the next time; the judgement reads once more
            if problem.is_final:
                raise CheckFailed(f"{problem} The check cannot read what became of the canary.") from None

    def _judge(self, started: datetime, *, ran: bool, has_gone_on: bool, output: str) -> Checked:
        label, url, found = self.agent.label, self.found.server.url, self.found
        token = token_if_here(found.server.token)
        try:
            found.look()
            ends = monotonic() + REPORT_SECONDS
            while ran and found.allowed and not found.ended and monotonic() < ends:
                sleep(POLL_SECONDS)
                found.look()
        except ServerProblem as problem:
            raise CheckFailed(f"{problem} The check cannot tell whether {label} asked.") from None
        if ran and not found.allowed:
            raise CheckFailed(f"{label} ran the canary without asking.")
        if ran and not found.ended:
            raise CheckFailed(f"{label} was allowed to run the canary, ran it, and did not report it.")
        session = found.session.get("name") or (session_asked_since(started, self.agent, token) if token else None)
        if session is None:
            if not has_gone_on:
                raise CheckFailed(f"{label} did not run the canary. Its last words:\n{output}")
            unseen = "" if token else " A refusal by a policy or a limit leaves none, which this check cannot see."
            raise CheckFailed(f"{label} refused the canary, and {url} has no call of it.{unseen} Its words:\n{output}")
        if token is not None:
            note_check(self.agent.slug, session, by=Requester(token.user, token, session=session))
        page = f"{url}/sessions/{found.session['id']}/" if found.session else ""
        held = bool(found.calls) and not found.allowed
        return Checked(session, page, held=held, refused=not found.calls, noted=token is not None)


def session_asked_since(started: datetime, agent: CodingAgent, token: ApiToken) -> str | None:
    """Return the session in which the client has asked, also about a call that was refused and so is not stored."""
    asked = ClientSession.objects.filter(owner=f"token:{token.pk}", client=agent.slug, last_asked_at__gte=started)
    return asked.values_list("session", flat=True).first()
