"""`manage.py stop --reason R`: stops everything, or one tool, category, source, agent, token or person."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from approvals.models import Stop
from approvals.stops.services import AlreadyStopped, parse_scope, scope_in_words, set_or_cancel
from catalog.core.transactions import is_unavailable
from catalog.errors import ParameterError

THROUGH = "manage.py stop"
SCOPES = [kind for kind in Stop.Kind.values if kind != Stop.Kind.EVERYTHING]
NOT_SET = "The database is not available, so this did not take effect: nothing was stopped. Try again."


class Command(BaseCommand):
    help = "Stop everything, or what one option names: nothing of it starts until `manage.py resume`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--reason", required=True, metavar="R", help="for people and agents; recorded")
        parser.add_argument("--cancel-running", action="store_true", help="also ask what runs now to cancel")
        chosen = parser.add_mutually_exclusive_group()
        for kind in SCOPES:
            options: dict[str, Any] = {"type": int, "metavar": "ID"} if kind == Stop.Kind.TOKEN else {"metavar": "NAME"}
            chosen.add_argument(f"--{kind}", **options)

    def handle(self, *args: Any, **options: Any) -> None:
        given = {kind: options[kind] for kind in SCOPES if options[kind] is not None}
        reason, cancel = options["reason"], options["cancel_running"]
        try:
            scope = parse_scope(given or {"everything": True})
            stop, _is_new = set_or_cancel(scope, reason, by=None, through=THROUGH, cancel_running=cancel)
        except AlreadyStopped as standing:
            raise CommandError(f"{standing.message} It is {standing.stop.public_id}.") from None
        except ParameterError as error:
            raise CommandError(error.message) from None
        except Error as error:
            raise CommandError(NOT_SET) if is_unavailable(error) else error from None
        self.stdout.write(f"{stop.public_id}: {scope_in_words(stop)}: stopped.")
