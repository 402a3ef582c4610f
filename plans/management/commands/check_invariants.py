"""`manage.py check_invariants`: exit 0 if every invariant holds, 1 if one is broken, 2 if none can be checked.

Read-only; prints ids, never arguments or results. docs/invariants.md explains each invariant and what to do.
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
from plans.invariants.base import CannotCheck, CheckInput, Invariant, Result, check_invariants

BROKEN, NOT_CHECKED = 1, 2
MAX_IDS_SHOWN = 10
NO_DATABASE = (
    "The database cannot be read. Check that it is running, that DATABASE_URL is correct and migrations are applied."
)


class Command(BaseCommand):
    help = "Check the invariants of the whole database. Read-only; safe to run while Toolgate is running."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--grace", type=float, default=60.0, metavar="SECONDS",
            help="how long something may be overdue before it counts as broken (60)",
        )  # fmt: skip
        parser.add_argument("--effects", type=Path, metavar="FILE", help="log of tools' effects, one per line, for I10")
        parser.add_argument(
            "--history", type=Path, metavar="FILE", help="responses that a client received, as JSON lines, for I14"
        )
        parser.add_argument(
            "--captures", type=Path, action="append", default=[], metavar="FILE",
            help="file or folder of captured logs, responses, messages or pages, for I15",
        )  # fmt: skip
        parser.add_argument(
            "--canary", action="append", default=[], metavar="TEXT",
            help="planted personal data, allowed only in payloads",
        )  # fmt: skip
        parser.add_argument(
            "--secret", action="append", default=[], metavar="TEXT", help="planted secret, allowed nowhere"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            clock.refresh()
            if not 0 <= options["grace"] <= 10**6:
                raise CannotCheck("--grace takes 0 to 1,000,000 seconds.")
            if options["captures"] and not (options["canary"] or options["secret"]):
                raise CannotCheck("--captures needs --canary or --secret.")
            check = CheckInput(
                now=clock.now(),
                lease_seconds=settings.TOOLGATE_LEASE_SECONDS,
                grace_seconds=options["grace"],
                effects=options["effects"],
                history=options["history"],
                captures=options["captures"],
                canaries=options["canary"],
                secrets=options["secret"],
            )
            report = check_invariants(check, watcher=self._progress)
        except CannotCheck as problem:
            raise CommandError(str(problem), returncode=NOT_CHECKED) from None
        except (DatabaseError, InterfaceError):
            raise CommandError(NO_DATABASE, returncode=NOT_CHECKED) from None
        finally:
            if self.stderr.isatty():
                self.stderr.write("\r\033[K", ending="")
        if options["json"]:
            self.stdout.write(json.dumps(report.as_dict()))
        else:
            for result in report.results:
                verdict = "ok" if result.holds else f"{result.count:,} broken"
                verdict = verdict if result.is_checked else "not checked"
                self.stdout.write(f"{result.invariant.id:<4}{verdict:<12}{result.invariant.sentence}")
                for line in _details(result):
                    self.stdout.write(f"    {line}")
            checked = sum(result.is_checked for result in report.results)
            broken = len(report.violations())
            self.stdout.write(f"{checked} checked, {broken} broken, {len(report.results) - checked} not checked.")
        if not report.ok:
            sys.exit(BROKEN)

    def _progress(self, invariant: Invariant) -> None:
        if self.stderr.isatty():
            self.stderr.write(f"\r\033[Kchecking {invariant.id}…", ending="")


def _details(result: Result) -> list[str]:
    if not result.is_checked:
        return [result.missing]
    lines = [f"{count:,}: {why}" for why, count in result.reasons.most_common()]
    if result.ids:
        more = ", …" if len(result.ids) > MAX_IDS_SHOWN or result.count > len(result.ids) else ""
        lines.append(", ".join(result.ids[:MAX_IDS_SHOWN]) + more)
    return lines
