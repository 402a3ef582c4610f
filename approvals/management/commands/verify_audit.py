"""`manage.py verify_audit`: verifies the audit log; exit code 0 if it is intact, 1 otherwise."""

import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.audit.verification import verify


class Command(BaseCommand):
    """Verifies the audit log."""

    help = "Recompute the audit log's hash chain and compare it with its head and its checkpoints."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify and print the result; exit with 1 if the log is not intact, 2 if the checkpoints cannot be read."""
        try:
            found = verify()
        except OSError as error:
            raise CommandError(f"The audit checkpoints cannot be read: {error.strerror}.", returncode=2) from None
        if options["json"]:
            document = {name: value for name, value in asdict(found).items() if value is not None}
            self.stdout.write(json.dumps(document))
        elif found.intact:
            self.stdout.write(f"intact: {found.entries:,} entries, compared with {found.checkpoints:,} checkpoints")
        else:
            bad = f"entry {found.first_bad} is the first wrong or missing one. " if found.first_bad else ""
            self.stdout.write(f"not intact: {bad}{found.reason}")
        if not found.intact:
            sys.exit(1)
