"""`manage.py create_token`: create a bearer token for a user and print its text, once."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from catalog.access.limits import LEVELS
from catalog.access.tokens import DEFAULT_TOKEN_DAYS, MAX_HOLD_SECONDS, MAX_TOKEN_DAYS, SCOPES, issue_token
from catalog.errors import ParameterError
from catalog.models import ApiToken


class Command(BaseCommand):
    help = "Create a bearer token for a user and print it, once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, metavar="U", help="username of the owner")
        parser.add_argument("--kind", required=True, choices=ApiToken.Kind.values)
        parser.add_argument("--scopes", required=True, metavar="a,b", help=f"of {', '.join(SCOPES)}")
        parser.add_argument("--name", default="", metavar="N", help="name of the token")
        parser.add_argument(
            "--days",
            type=int,
            default=DEFAULT_TOKEN_DAYS,
            metavar="D",
            help=f"days until it expires, at most {MAX_TOKEN_DAYS}",
        )
        parser.add_argument(
            "--hold-seconds",
            type=int,
            metavar="S",
            help=f"seconds an MCP call may wait for a decision, 0 to {MAX_HOLD_SECONDS}",
        )
        parser.add_argument("--max-level", choices=LEVELS, help="highest safety level of the tools it may use")
        for name in ("category", "source"):
            parser.add_argument(
                f"--{name}", action="append", metavar="N", help=f"limit it to tools of this {name}; may be repeated"
            )

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"No active user '{options['user']}'.")
        scopes = [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
        terms = {name: options[name] for name in ("kind", "name", "days", "hold_seconds")}
        given = {"max_level": options["max_level"], "categories": options["category"], "sources": options["source"]}
        limits = {name: value for name, value in given.items() if value is not None}
        try:
            _, text = issue_token(user=user, scopes=scopes, limits=limits, **terms)
        except ParameterError as error:
            raise CommandError(error.message) from None
        self.stdout.write(text)
