"""The check of a set-up: the real client, with its own configuration, is made to run a canary.

The scripted model tells the client to run a command that writes a file. Toolgate must be asked about it; the check
withdraws the request, and the client must not run it. It costs nothing and reaches no model.
"""

import secrets
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep

from django.db.models import QuerySet

from approvals.models import ApprovalRequest
from approvals.requests.lifecycle import withdraw
from approvals.states import RequestStatus
from catalog.core import clock
from catalog.errors import ToolgateError
from catalog.models import ApiToken, ClientRun
from plans.client_setup.clients import ClientWithHooks, Codex, CodingAgent
from plans.client_setup.codex_hooks import TRUSTED, NoAnswer, list_hooks
from plans.client_setup.configuration import NotChanged
from plans.client_setup.headless import headless_run, shell_use
from plans.client_setup.scripted_model import ScriptedModel, scripted_model
from plans.client_setup.tokens import check_token_there, token_here
from plans.coding_agents.sessions import note_check
from plans.models import ClientSession
from plans.store.requesters import Requester

SECONDS = 240
"""Time after which the client is stopped; opencode installs its plugins' packages at its first start."""
POLL_SECONDS = 0.2


class CheckFailed(Exception):
    """The client does not ask first, as far as the check can see; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The canary was asked about in this session. `held` is False where a policy answered it at once."""

    session: str
    held: bool


def check(agent: CodingAgent) -> Checked:
    """Send the canary through the client, and record in its session that it is armed. Raises CheckFailed."""
    stored = agent.stored_setup()
    if stored is None:
        raise CheckFailed(f"{agent.label} is not set up: run connect {agent.slug}.")
    token = token_here(stored.token)
    if token is None:
        raise CheckFailed(
            f"Its token ended, or belongs to another installation than this one; the check runs where {stored.url} "
            "keeps its database."
        )
    program = agent.find_program()
    if program is None:
        raise CheckFailed(f"There is no command {agent.program}. Install {agent.label}, or mend PATH.")
    try:
        agent.check_obstacles()
        check_token_there(stored.url, stored.token)
    except NotChanged as obstacle:
        raise CheckFailed(str(obstacle)) from None
    check_entries(agent, program)
    return _Canary(agent, program, token).run()


def check_entries(agent: CodingAgent, program: str) -> None:
    """Raise CheckFailed if the hook's entry is gone, or if Codex would skip it."""
    if isinstance(agent, ClientWithHooks) and not agent.stored_python():
        raise CheckFailed(f"The hook is not in {agent.hooks_file}: run connect {agent.slug}.")
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
        raise CheckFailed("Codex does not list the hook: run connect codex.")
    for hook in own:
        if not hook.get("enabled") or hook.get("trustStatus") not in TRUSTED:
            raise CheckFailed(
                f"Codex does not trust the hook {hook.get('eventName')}, and skips it without a word. Run connect "
                "codex again, or trust it in Codex with /hooks."
            )


class _Canary:
    """One run of the client with the canary."""

    def __init__(self, agent: CodingAgent, program: str, token: ApiToken) -> None:
        self.agent, self.program, self.token = agent, program, token
        self.owner = f"token:{token.pk}"

    def run(self) -> Checked:
        started = clock.now()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            work = folder / "work"
            work.mkdir()
            canary = work / f"toolgate-canary-{secrets.token_hex(8)}"
            command = f"echo canary > {canary.name}"
            with scripted_model([[shell_use(self.agent.slug, command)]]) as model:
                output = self._run_client(model, folder, work)
            has_gone_on = len(model.requests) > 1
            return self._judge(started, work, ran=canary.exists(), has_gone_on=has_gone_on, output=output)

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
                    self._withdraw(work)
                    sleep(POLL_SECONDS)
            finally:
                process.kill()
                process.wait()
                self._withdraw(work)
        return path.read_text(encoding="utf-8", errors="replace")[-600:].strip()

    def _runs(self, work: Path) -> QuerySet[ClientRun]:
        return ClientRun.objects.filter(owner=self.owner, client=self.agent.slug, cwd=str(work))

    def _withdraw(self, work: Path) -> None:
        calls = self._runs(work).values("call_id")
        for request in ApprovalRequest.objects.filter(call__in=calls, status=RequestStatus.PENDING):
            with suppress(ToolgateError):  # somebody decided it at this moment
                withdraw(request, by=self.token.user, reason="Check of the client by the command connect.")

    def _judge(self, started: datetime, work: Path, *, ran: bool, has_gone_on: bool, output: str) -> Checked:
        runs = list(self._runs(work))
        allowed = any(run.allowed_at is not None for run in runs)
        asked = ClientSession.objects.filter(owner=self.owner, client=self.agent.slug, last_asked_at__gte=started)
        session = runs[0].session if runs else asked.values_list("session", flat=True).first()
        if ran and not allowed:
            raise CheckFailed(f"{self.agent.label} ran the canary without asking.")
        if session is None:
            what = "refused the canary, but Toolgate was not asked" if has_gone_on else "did not run the canary"
            raise CheckFailed(f"{self.agent.label} {what}. Its last words:\n{output}")
        note_check(self.agent.slug, session, by=Requester(self.token.user, self.token, session=session))
        return Checked(session, held=bool(runs) and not allowed)
