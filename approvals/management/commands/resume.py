"""`manage.py resume [ID] --reason R`: lifts one stop, or all that stand."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.models import Stop
from approvals.stops.services import lift_stop, scope_in_words
from catalog.errors import Conflict, ParameterError

THROUGH = "manage.py resume"


class Command(BaseCommand):
    help = "Lift the stop with this id, or all that stand. What they held up goes on within a second."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", nargs="?", help="id of a stop; without it, all standing stops are lifted")
        parser.add_argument("--reason", required=True, metavar="R", help="recorded in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        stops = Stop.objects.filter(public_id=options["id"]) if options["id"] else Stop.objects.filter(lifted_at=None)
        found = list(stops.order_by("pk"))
        if not found:
            raise CommandError("There is no such stop." if options["id"] else "Nothing is stopped.")
        for stop in found:
            try:
                lift_stop(stop, options["reason"], by=None, through=THROUGH)
            except (Conflict, ParameterError) as error:
                raise CommandError(error.message) from None
            self.stdout.write(f"{stop.public_id}: {scope_in_words(stop)}: lifted.")
