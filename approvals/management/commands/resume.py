"""`manage.py resume [ID] --reason R`: lifts one stop, or all that stand."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from approvals.models import Stop
from approvals.stops.services import lift_stop, scope_in_words
from catalog.core.transactions import is_unavailable
from catalog.errors import Conflict, ParameterError

THROUGH = "manage.py resume"
NOT_LIFTED = "The database is not available. Whatever is not named above as lifted may stand still. Try again."


class Command(BaseCommand):
    help = "Lift the stop with this id, or all that stand. What they held up goes on within a second."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", nargs="?", help="id of a stop; without it, all standing stops are lifted")
        parser.add_argument("--reason", required=True, metavar="R", help="recorded in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        stops = Stop.objects.filter(public_id=options["id"]) if options["id"] else Stop.objects.filter(lifted_at=None)
        try:
            self._lift(list(stops.order_by("pk")), options["reason"], is_one=bool(options["id"]))
        except Error as error:
            raise CommandError(NOT_LIFTED) if is_unavailable(error) else error from None

    def _lift(self, stops: list[Stop], reason: str, *, is_one: bool) -> None:
        if not stops:
            raise CommandError("There is no such stop." if is_one else "Nothing is stopped.")
        for stop in stops:
            words = f"{stop.public_id}: {scope_in_words(stop)}"
            try:
                lift_stop(stop, reason, by=None, through=THROUGH)
            except ParameterError as error:
                raise CommandError(error.message) from None
            except Conflict as error:
                if is_one:
                    raise CommandError(error.message) from None
                self.stdout.write(f"{words}: somebody else has just lifted it.")
            else:
                self.stdout.write(f"{words}: lifted.")
