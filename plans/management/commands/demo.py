"""`manage.py demo`: fill the database with demo users, files and plans, then serve them."""

import json
import socket
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from catalog.errors import Conflict
from plans.demo.installation import Tokens, set_up_demo
from plans.demo.people import DemoSignIn
from plans.management.commands.serve import link_to
from plans.management.preconditions import refuse_a_restored_database, refuse_without_migrations
from toolgate.places import COMMAND, IS_INSTALLED

HOST, PORT = "127.0.0.1", 8000
HIGHEST_PORT = 65535


class Command(BaseCommand):
    help = "Fill the database with demo users, tools and plans, print the sign-ins, and serve on 127.0.0.1."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", default=PORT, type=int, help=f"the port to serve on ({PORT})")
        parser.add_argument("--json", action="store_true", help="print the URL, sign-ins and tokens as one JSON object")
        parser.add_argument("--no-serve", action="store_true", help="stop once the plans have ended or wait for people")

    def handle(self, *args: Any, **options: Any) -> None:
        port, serves = options["port"], not options["no_serve"]
        if not 1 <= port <= HIGHEST_PORT:
            raise CommandError(f"--port must be 1 to {HIGHEST_PORT}.")
        refuse_without_migrations()
        refuse_a_restored_database()
        if serves:
            refuse_a_taken_port(port)
        link_to(HOST, port)
        try:
            made = set_up_demo()
        except Conflict as conflict:
            raise CommandError(str(conflict)) from None
        for problem in made.problems:
            self.stderr.write(problem)
        people, tokens = made.sign_ins, made.tokens
        command = "" if serves else f"{COMMAND} serve --port {port}"
        self.stdout.write(demo_as_json(people, tokens) if options["json"] else demo_summary(people, tokens, command))
        self.stdout.flush()
        if serves:
            call_command("serve", host=HOST, port=port, stdout=self.stderr)


def refuse_a_taken_port(port: int) -> None:
    """Raise CommandError if the port is in use, before anything is reset."""
    if is_free(port):
        return
    free = next((each for each in range(port + 1, HIGHEST_PORT + 1) if is_free(each)), PORT)
    raise CommandError(
        f"Port {port} is in use. Stop its process, or choose another port: `{COMMAND} demo --port {free}`"
        + ("." if IS_INSTALLED else f', or `make demo ARGS="--port {free}"`.')
    )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def demo_as_json(sign_ins: list[DemoSignIn], tokens: Tokens) -> str:
    return json.dumps(
        {
            "url": settings.TOOLGATE_URL,
            "users": [
                {"username": each.person.username, "password": each.password, "roles": [each.person.role]}
                for each in sign_ins
            ],
            "tokens": {
                name: {"token": text, "username": token.user.get_username(), "scopes": token.scopes}
                for name, (token, text) in tokens.items()
            },
        }
    )


def demo_summary(sign_ins: list[DemoSignIn], tokens: Tokens, command: str) -> str:
    """Return URL, users and tokens as text; `command` is the command that serves the demo, if it does not run yet."""
    serving = f"Run `{command}` to serve the demo on" if command else "The demo is ready:"
    waiting = ApprovalRequest.objects.filter(status=RequestStatus.PENDING).count()
    return "\n".join(
        [
            f"\n{serving} {settings.TOOLGATE_URL}/",
            f"Requests waiting for a reviewer: {waiting}.\n",
            "Sign in as",
            *(f"  {each.person.username:<6} {each.password}   {each.person.role}" for each in sign_ins),
            "\nTokens for the API",
            *(f"  {name:<9} {text}   of {token.user.get_username()}" for name, (token, text) in tokens.items()),
            "\nTo try the API as the agent, paste into a shell",
            f"  AGENT={tokens['agent'][1]}",
            f"  API={settings.TOOLGATE_URL}/api/v1",
            "\nThe next run creates new passwords and tokens.\n",
        ]
    )
