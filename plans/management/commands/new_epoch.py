"""`manage.py new_epoch --reason R`: void earlier approvals after a backup was restored, and record the reason."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from approvals.recovery import EpochSummary, begin_epoch
from catalog.core import clock
from catalog.errors import ParameterError
from plans.engine.recovery import expire_all_leases, take_back_lost_steps
from plans.management.preconditions import refuse_without_migrations


class Command(BaseCommand):
    help = "Start a new epoch after a restore: void open requests and grants, release running steps, record the reason."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--reason", required=True, metavar="R", help="reason for the new epoch; recorded in the audit log"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_without_migrations()
        try:
            summary = begin_epoch(options["reason"])
        except ParameterError as error:
            raise CommandError(error.message) from None
        except OSError as error:
            raise CommandError(f"The audit checkpoints cannot be read or written: {error.strerror}.") from None
        now = clock.now()
        expire_all_leases(now)
        released = 0
        while count := take_back_lost_steps(clock.now()):
            released += count
        self.stdout.write(summary_text(summary, released))


def summary_text(summary: EpochSummary, released: int) -> str:
    """Return the changes of the new epoch as text; `released` is the number of released steps."""
    lines = [
        f"Epoch {summary.epoch} has started.",
        f"Open requests voided: {summary.requests:,}. Their steps will request approval again.",
        f"Grants ended: {summary.grants:,}.",
        f"Running steps released: {released:,}. The outcomes of dangerous calls are unknown; settle them.",
    ]
    if summary.lost_entries:
        lines.append(f"Audit entries lost: at least {summary.lost_entries:,}, according to the checkpoints.")
    return "\n".join([*lines, "Start the servers and workers again."])
