"""`manage.py verify_audit`: verifies the audit log and the rows that decide rights; exit code 0 if all is intact."""

import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.audit.rights import changed_rows
from approvals.audit.verification import verify

MOST_SHOWN = 100


class Command(BaseCommand):
    help = (
        "Recompute the audit log's hash chain, compare it with its head and its checkpoints, and compare the rows that "
        "decide rights with their last entries."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify and print the result; exit with 1 if a fault was found, 2 if the checkpoints cannot be read."""
        try:
            found = verify()
        except OSError as error:
            raise CommandError(f"The audit checkpoints cannot be read: {error.strerror}.", returncode=2) from None
        changed = [ref for ref, _ in changed_rows()] if found.intact else []  # a broken log proves nothing about rows
        if options["json"]:
            document = {name: value for name, value in asdict(found).items() if value is not None}
            self.stdout.write(json.dumps(document | {"changed_rows": changed}))
        elif found.intact:
            self.stdout.write(f"intact: {found.entries:,} entries, compared with {found.checkpoints:,} checkpoints")
        else:
            bad = f"entry {found.first_bad} is the first wrong or missing one. " if found.first_bad else ""
            self.stdout.write(f"not intact: {bad}{found.reason}")
        if changed and not options["json"]:
            self.stdout.write(
                f"{len(changed):,} rows differ from their last entries: {', '.join(changed[:MOST_SHOWN])}"
            )
        if changed or not found.intact:
            sys.exit(1)
