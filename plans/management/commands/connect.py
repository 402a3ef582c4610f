"""`manage.py connect CLIENT`: let a coding agent ask Toolgate before it runs its own tools, and check that it does."""

import os
import socket
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, ProgrammingError

from catalog.access.tokens import MAX_TOKEN_NAME
from plans.client_setup.check import CheckFailed, check
from plans.client_setup.clients import CODING_AGENTS, CodingAgent, Setup, find_python
from plans.client_setup.configuration import FileChange, NotChanged, apply_changes, removed_copies
from plans.client_setup.tokens import (
    accepts_token,
    asking_user,
    check_address,
    check_token_there,
    end_token,
    make_token,
    token_here,
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
        action = parser.add_mutually_exclusive_group()
        action.add_argument("--print", action="store_true", help="show what would change, and change nothing")
        action.add_argument("--check", action="store_true", help="send a canary through the client, which must be held")
        action.add_argument("--undo", action="store_true", help="take everything back and revoke the token")

    def handle(self, *args: Any, **options: Any) -> None:
        agent = CODING_AGENTS[options["client"]](os.environ)
        try:
            if options["undo"]:
                self._undo(agent)
            elif options["check"]:
                self._check(agent)
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
        if options["print"]:
            self._show(agent.changes(Setup(url, PLACEHOLDER, python)), PLACEHOLDER)
            self.stdout.write("Nothing was changed.")
            return
        agent.changes(Setup(url, PLACEHOLDER, python))  # raises what is wrong before a token is made
        token = self._token(agent, url, options)
        changes = agent.changes(Setup(url, token, python))
        self._show(changes, token)
        apply_changes(changes)
        self.stdout.write(
            f"\n{agent.label} now asks {url} before it runs a tool. Start it anew: open sessions may not know.\n"
            f"Each of its tools waits for a person until a policy says otherwise: {url}/policies/ has a set for it.\n"
            f"Check it: connect {agent.slug} --check\nTake it back: connect {agent.slug} --undo"
        )
        if not accepts_token(url, token):
            self.stdout.write(
                f"No server at {url} knows the token now. Until one does, {agent.label} is refused every tool. "
                "If the server has another address, set TOOLGATE_URL and run this again."
            )

    def _token(self, agent: CodingAgent, url: str, options: dict[str, Any]) -> str:
        """Return the token in TOOLGATE_TOKEN, else the one of an earlier set-up, else a new one of this database."""
        given = os.environ.get(TOKEN_VARIABLE, "").strip()
        if given:
            if options["user"]:
                raise NotChanged(f"--user is for a new token; {TOKEN_VARIABLE} holds one. Give one of the two.")
            check_token_there(url, given)
            return given
        if url != settings.TOOLGATE_URL and options["url"]:
            raise NotChanged(
                f"This installation is {settings.TOOLGATE_URL}. For {url}, make a token on its page Connect an agent "
                f"({url}/connect/), and put it into {TOKEN_VARIABLE}. If both are one server, set TOOLGATE_URL."
            )
        stored = agent.stored_setup()
        known = token_here(stored.token) if stored is not None else None
        if stored is not None and known is not None and options["user"] in (None, known.user.get_username()):
            return stored.token
        user = asking_user(options["user"])
        name = f"{agent.label} on {socket.gethostname()}"[:MAX_TOKEN_NAME]
        self.stdout.write(f"Makes the token “{name}” of {user.get_username()}.")
        return make_token(user, name)

    def _check(self, agent: CodingAgent) -> None:
        checked = check(agent)
        how = "held, and not run" if checked.held else "decided by a policy or a grant"
        self.stdout.write(f"Armed: {agent.label} asked about the canary in session {checked.session}; it was {how}.")

    def _show(self, changes: list[FileChange], token: str) -> None:
        for change in changes:
            if not change.is_none:
                self.stdout.write(change.difference(hide=[token]), ending="")

    def _undo(self, agent: CodingAgent) -> None:
        stored = agent.stored_setup()
        changes = agent.removals()
        changes += removed_copies(changes)
        if all(change.is_none for change in changes):
            self.stdout.write(f"{agent.label} was not set up. Nothing was changed.")
            return
        self._show(changes, stored.token if stored is not None else PLACEHOLDER)
        apply_changes(changes)
        if stored is not None:
            ended = end_token(stored.url, stored.token)
            self.stdout.write("The token is revoked." if ended else "The token could not be revoked, or had ended.")
        self.stdout.write(f"{agent.label} no longer asks Toolgate.")
