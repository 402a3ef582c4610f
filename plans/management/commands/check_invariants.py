"""`manage.py check_invariants`: exit 0 when every invariant holds, 1 when one does not, 2 when none can be checked.

Only reads, and prints ids, never arguments or results. docs/invariants.md says what each means and what to do.
"""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError

from catalog.core import clock
from plans.invariants.base import CannotCheck, CheckInput, Invariant, Report, Result, check_invariants

BROKEN, NOT_CHECKED = 1, 2
SHOWN = 10
NO_DATABASE = (
    "The database cannot be read: see that it runs, that DATABASE_URL names it, and that `migrate` has been run."
)


class Command(BaseCommand):
    """Checks what must be true of the whole database."""

    help = "Check the invariants over the whole database. Only reads; may run while the product does."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the form of the answer, how long things may take, and what was seen outside of the database."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--grace", type=float, default=60.0, metavar="SECONDS",
            help="how long past its time something may still be under way (60)",
        )  # fmt: skip
        parser.add_argument("--effects", type=Path, metavar="FILE", help="what tools did, a line each: I10")
        parser.add_argument("--history", type=Path, metavar="FILE", help="what a client was told, in JSON lines: I14")
        parser.add_argument(
            "--captures", type=Path, action="append", default=[], metavar="FILE",
            help="a file or folder of what was logged, answered, sent or shown: I15",
        )  # fmt: skip
        parser.add_argument(
            "--canary", action="append", default=[], metavar="TEXT",
            help="personal data that was planted: belongs where payloads are, nowhere else",
        )  # fmt: skip
        parser.add_argument(
            "--secret", action="append", default=[], metavar="TEXT", help="a secret that was planted: belongs nowhere"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, say what was found, and exit with what it means."""
        try:
            clock.refresh()
            report = check_invariants(self._world(options), watcher=self._progress)
        except CannotCheck as problem:
            raise CommandError(str(problem), returncode=NOT_CHECKED) from None
        except (DatabaseError, InterfaceError):
            raise CommandError(NO_DATABASE, returncode=NOT_CHECKED) from None
        finally:
            self._clear()
        if options["json"]:
            self.stdout.write(json.dumps(report.as_dict()))
        else:
            self._tell(report)
        if not report.ok:
            sys.exit(BROKEN)

    def _world(self, options: dict[str, Any]) -> CheckInput:
        if not 0 <= options["grace"] <= 10**6:
            raise CannotCheck("--grace takes 0 to 1,000,000 seconds.")
        if options["captures"] and not (options["canary"] or options["secret"]):
            raise CannotCheck("--captures says where to look; say with --canary or --secret what to look for.")
        return CheckInput(
            now=clock.now(),
            lease_seconds=settings.TOOLGATE_LEASE_SECONDS,
            grace_seconds=options["grace"],
            effects=options["effects"],
            history=options["history"],
            captures=options["captures"],
            canaries=options["canary"],
            secrets=options["secret"],
        )

    def _progress(self, invariant: Invariant) -> None:
        """Say on a terminal what is being checked, on one line that is written over."""
        if self.stderr.isatty():
            self.stderr.write(f"\r\033[Kchecking {invariant.id}…", ending="")

    def _clear(self) -> None:
        if self.stderr.isatty():
            self.stderr.write("\r\033[K", ending="")

    def _tell(self, report: Report) -> None:
        for result in report.results:
            self.stdout.write(f"{result.invariant.id:<4}{_verdict(result):<12}{result.invariant.sentence}")
            for line in _details(result):
                self.stdout.write(f"    {line}")
        checked = sum(result.is_checked for result in report.results)
        broken = len(report.violations())
        self.stdout.write(f"{checked} checked, {broken} broken, {len(report.results) - checked} not checked.")


def _verdict(result: Result) -> str:
    if not result.is_checked:
        return "not checked"
    return "ok" if result.holds else f"{result.count:,} broken"


def _details(result: Result) -> list[str]:
    """Return the lines below an invariant: what it needs, or what breaks it."""
    if not result.is_checked:
        return [result.missing]
    lines = [f"{count:,}: {why}" for why, count in result.reasons.most_common()]
    if result.ids:
        more = ", …" if len(result.ids) > SHOWN or result.count > len(result.ids) else ""
        lines.append(", ".join(result.ids[:SHOWN]) + more)
    return lines
