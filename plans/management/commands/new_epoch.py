"""`manage.py new_epoch --reason R`: void earlier approvals after restoring a backup, and record the reason."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from approvals.recovery import EpochSummary, begin_epoch
from catalog.core import clock
from catalog.errors import ParameterError
from plans.engine.recovery import expire_all_leases, take_back_lost_steps
from plans.management.preconditions import refuse_without_migrations


class Command(BaseCommand):
    """Begin the next epoch."""

    help = "After restoring a backup: end approvals and grants, ask people about started dangerous calls, audit why."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add --reason."""
        parser.add_argument("--reason", required=True, metavar="R", help="why; kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Begin the epoch, release steps that appear to be running, and print a summary."""
        refuse_without_migrations()
        try:
            begun = begin_epoch(options["reason"])
        except ParameterError as error:
            raise CommandError(error.message) from None
        except OSError as error:
            raise CommandError(f"The audit checkpoints cannot be read or written: {error.strerror}.") from None
        now = clock.now()
        expire_all_leases(now)
        taken_back = 0
        while taken := take_back_lost_steps(clock.now()):
            taken_back += taken
        self.stdout.write(epoch_summary(begun, taken_back))


def epoch_summary(begun: EpochSummary, taken_back: int) -> str:
    """Return a summary of what the new epoch changed."""
    said = [
        f"Epoch {begun.epoch} has begun.",
        f"Ended: {begun.requests:,} open requests, which will be requested again, and {begun.grants:,} grants.",
        f"Released: {taken_back:,} running steps. People must say what happened for dangerous calls.",
    ]
    if begun.lost_entries:
        said.append(f"Lost: at least {begun.lost_entries:,} entries of the audit log, according to its checkpoints.")
    return "\n".join([*said, "Start servers and workers again."])
