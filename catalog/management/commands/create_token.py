"""`manage.py create_token`: make a bearer token for someone; its text is printed once and never again."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from catalog.access.tokens import DEFAULT_TOKEN_DAYS, MAX_HOLD_SECONDS, MAX_TOKEN_DAYS, SCOPES, issue_token
from catalog.errors import ParameterError
from catalog.models import ApiToken


class Command(BaseCommand):
    """Make a token and print it."""

    help = "Make a bearer token for a user and print it, once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the user, the kind and the scopes; optionally a name, a lifetime and the longest wait of an MCP call."""
        parser.add_argument("--user", required=True, metavar="U", help="username of the owner")
        parser.add_argument("--kind", required=True, choices=ApiToken.Kind.values)
        parser.add_argument("--scopes", required=True, metavar="a,b", help=f"of {', '.join(SCOPES)}")
        parser.add_argument("--name", default="", metavar="N", help="what people call it")
        parser.add_argument(
            "--days",
            type=int,
            default=DEFAULT_TOKEN_DAYS,
            metavar="D",
            help=f"how long it lives, at most {MAX_TOKEN_DAYS}",
        )
        parser.add_argument(
            "--hold-seconds",
            type=int,
            metavar="S",
            help=f"how long an MCP call may wait for a decision, 0 to {MAX_HOLD_SECONDS}",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the token; print its text and nothing else."""
        user = User.objects.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user '{options['user']}'.")
        scopes = [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
        wanted = {name: options[name] for name in ("kind", "name", "days", "hold_seconds")}
        try:
            _, text = issue_token(user=user, scopes=scopes, **wanted)
        except ParameterError as error:
            raise CommandError(error.message) from None
        self.stdout.write(text)
