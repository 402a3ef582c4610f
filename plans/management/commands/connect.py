"""`manage.py connect CLIENT`: let a coding agent ask Toolgate before it runs its own tools, and check that it does."""

import os
import socket
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, ProgrammingError

from approvals.policies.shipped import CODING_AGENT, NAMES, add_coding_agent_policies, policies_named
from approvals.policy_language.sentences import policy_sentence
from catalog.access.tokens import ASK_SCOPE, MAX_TOKEN_NAME
from catalog.errors import ToolgateError
from plans.client_setup.check import CheckFailed, check
from plans.client_setup.clients import CODING_AGENTS, CodingAgent, Setup, find_python
from plans.client_setup.configuration import FileChange, NotChanged, apply_changes, removed_copies
from plans.client_setup.server import Server
from plans.client_setup.tokens import (
    SCOPES,
    asking_user,
    check_address,
    check_token_there,
    end_token,
    make_token,
    policy_changer,
    token_here,
    token_if_here,
)
from toolgate.places import COMMAND

TOKEN_VARIABLE = "TOOLGATE_TOKEN"  # noqa: S105 - the name of a variable
PLACEHOLDER = "tg_your-token"


class Command(BaseCommand):
    help = (
        "Set a coding agent up so that it asks Toolgate before it runs its own tools, and connect it to /mcp. Each "
        "file that changes is named and shown. For a server elsewhere, give --url, and a token in TOOLGATE_TOKEN."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("client", choices=list(CODING_AGENTS))
        parser.add_argument("--url", help=f"address of the server ({settings.TOOLGATE_URL})")
        parser.add_argument("--user", metavar="N", help="username of the person for whom the agent asks")
        parser.add_argument(
            "--policies",
            metavar="N",
            nargs="?",
            const="",
            help="also add the policies for coding agents; N is the username of the administrator who adds them",
        )
        action = parser.add_mutually_exclusive_group()
        action.add_argument("--print", action="store_true", help="show what would change, and change nothing")
        action.add_argument("--check", action="store_true", help="send a canary through the client, which must be held")
        action.add_argument("--undo", action="store_true", help="take everything back and revoke the token")

    def handle(self, *args: Any, **options: Any) -> None:
        agent = CODING_AGENTS[options["client"]](os.environ)
        try:
            if options["policies"] is not None and (options["undo"] or options["check"]):
                raise NotChanged(
                    "--policies goes with neither --check nor --undo. They are deleted on the page Policies."
                )
            if options["undo"]:
                self._undo(agent)
            elif options["check"]:
                self._check(agent, options["url"] and check_address(options["url"]))
            else:
                self._connect(agent, options)
        except NotChanged as reason:
            raise CommandError(str(reason)) from None
        except CheckFailed as reason:
            raise CommandError(f"Not armed: {reason}") from None
        except (OperationalError, ProgrammingError):
            raise CommandError(
                f"The database of this installation cannot be used. Run `{COMMAND} migrate`; or, for a server "
                "elsewhere, give --url and a token in TOOLGATE_TOKEN."
            ) from None

    def _connect(self, agent: CodingAgent, options: dict[str, Any]) -> None:
        url = check_address(options["url"] or settings.TOOLGATE_URL)
        agent.check_obstacles()
        python = find_python()
        by = self._policy_changer(url, options["policies"])
        changes = agent.changes(Setup(url, PLACEHOLDER, python))  # raises what is wrong before a token is made
        if options["print"]:
            self._show(changes, PLACEHOLDER)
            if by is not None:
                self.stdout.write(f"Adds the policies: {', '.join(each.name for each in CODING_AGENT)}.")
            self.stdout.write("Nothing was changed.")
            return
        token = self._token(agent, url, options)
        changes = agent.changes(Setup(url, token, python))
        self._show(changes, token)
        apply_changes(changes)
        self.stdout.write(
            f"\n{agent.label} now asks {url} before it runs a tool. Start it anew: open sessions may not know."
        )
        if by is not None:
            self._add_policies(by)
        else:
            self.stdout.write(
                "Each of its tools, reads too, waits for a person until a policy says otherwise. An administrator can "
                f"add a set for coding agents: {url}/policies/#coding-agent-h, or --policies."
            )
        self.stdout.write(
            f"Check it: {COMMAND} connect {agent.slug} --check\nTake it back: {COMMAND} connect {agent.slug} --undo"
        )
        if not Server(url, token, agent.stored_route()).read_token():
            self.stdout.write(
                f"No server at {url} knows the token now. Until one does, {agent.label} is refused every tool. "
                "If the server has another address, set TOOLGATE_URL and run this again."
            )

    def _policy_changer(self, url: str, username: str | None) -> User | None:
        if username is None:
            return None
        given = _given_token()
        if given and token_if_here(given) is None:
            raise NotChanged(f"Policies are changed at the server: an administrator adds them on {url}/policies/.")
        return policy_changer(username)

    def _add_policies(self, by: User) -> None:
        if policies_named(*NAMES):
            self.stdout.write("The policies for coding agents are there already; none was added.")
            return
        self.stdout.write(f"Adds the policies for coding agents, by {by.get_username()}:")
        try:
            added = add_coding_agent_policies(by=by)
        except ToolgateError as error:
            raise CommandError(f"The client is set up, but no policy was added. {error.message}") from None
        for policy in added:
            off = "" if policy.enabled else " (off)"
            self.stdout.write(f"  {policy.name}{off}: {policy_sentence(policy.revision)}")
        self.stdout.write("Delete them on the page Policies. Paths and the directory are what the client claims.")

    def _token(self, agent: CodingAgent, url: str, options: dict[str, Any]) -> str:
        """Return the token in TOOLGATE_TOKEN, else the one of an earlier set-up, else a new one of this database."""
        given = _given_token()
        if given:
            if options["user"]:
                raise NotChanged(f"--user is for a new token; {TOKEN_VARIABLE} holds one. Give one of the two.")
            check_token_there(Server(url, given, agent.stored_route()), [ASK_SCOPE], f"in {TOKEN_VARIABLE}")
            return given
        if url != settings.TOOLGATE_URL and options["url"]:
            raise NotChanged(
                f"This installation is {settings.TOOLGATE_URL}. For {url}, make a token on its page Connect an agent "
                f"({url}/connect/), and put it into {TOKEN_VARIABLE}. If both are one server, set TOOLGATE_URL."
            )
        stored = agent.stored_setup()
        known = token_here(stored.token) if stored is not None else None
        is_whole = known is not None and {*SCOPES} <= {*known.scopes}
        if (
            stored is not None
            and known is not None
            and is_whole
            and options["user"] in (None, known.user.get_username())
        ):
            return stored.token
        user = asking_user(options["user"])
        name = f"{agent.label} on {socket.gethostname()}"[:MAX_TOKEN_NAME]
        self.stdout.write(f"Makes the token “{name}” of {user.get_username()}.")
        return make_token(user, name)

    def _check(self, agent: CodingAgent, url: str | None) -> None:
        self.stdout.write(f"Starts {agent.label} with a model on this machine that runs one command …")
        checked = check(agent, url)
        outcome = (
            "refused by a policy or a limit, and not run"
            if checked.refused
            else "held, and not run"
            if checked.held
            else "allowed by a policy, a grant or a person, run and reported"
        )
        self.stdout.write(f"Armed: {agent.label} asked about the canary in session {checked.name}; it was {outcome}.")
        if checked.page:
            self.stdout.write(f"Its session: {checked.page}")
        if checked.held or checked.refused:
            self.stdout.write("Not seen: a report of a run, because nothing ran.")
        if not checked.noted:
            self.stdout.write(
                "Not recorded: the server's database is not here. The session's page there says since when the client "
                "asks, but not that this check was made."
            )

    def _show(self, changes: list[FileChange], token: str) -> None:
        for change in changes:
            if not change.is_none:
                self.stdout.write(change.difference(hide=[token]), ending="")

    def _undo(self, agent: CodingAgent) -> None:
        stored, route = agent.stored_setup(), agent.stored_route()  # read before they are removed
        changes = agent.removals()
        changes += removed_copies(changes)
        if all(change.is_none for change in changes):
            self.stdout.write(f"{agent.label} was not set up. Nothing was changed.")
            return
        self._show(changes, stored.token if stored is not None else PLACEHOLDER)
        apply_changes(changes)
        if stored is not None:
            ended = end_token(Server(stored.url, stored.token, route))
            self.stdout.write("The token is revoked." if ended else "The token could not be revoked, or had ended.")
        self.stdout.write(f"{agent.label} no longer asks Toolgate.")


def _given_token() -> str:
    return os.environ.get(TOKEN_VARIABLE, "").strip()
