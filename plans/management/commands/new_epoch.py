"""`manage.py new_epoch --reason R`: after a restore. What was approved before is void, and the audit log says why."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from approvals.recovery import EpochSummary, begin_epoch
from catalog.core import clock
from catalog.errors import ParameterError
from plans.engine.recovery import expire_all_leases, take_back_lost_steps
from plans.management.preconditions import refuse_without_migrations


class Command(BaseCommand):
    """Begins the next epoch."""

    help = "After a restore: end open approvals and grants, leave started dangerous calls to people, audit the reason."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the reason."""
        parser.add_argument("--reason", required=True, metavar="R", help="why; kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Begin it, give up what seems to run, and say what was done."""
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
    """Say what a new epoch did."""
    said = [
        f"Epoch {begun.epoch} has begun.",
        f"Ended: {begun.requests:,} open requests, which are asked anew, and {begun.grants:,} grants.",
        f"Taken back: {taken_back:,} steps that ran; of a dangerous call a person says what it did.",
    ]
    if begun.lost_entries:
        said.append(f"Lost: at least {begun.lost_entries:,} entries of the audit log, which its checkpoints tell of.")
    return "\n".join([*said, "Start servers and workers again."])
