"""`manage.py run_plan FILE`: submit a plan from the shell and follow it, a line for each event.

Ends with 0 when the plan completed (or, without --wait, waits for people), 1 when it failed or was cancelled, 2 when
it cannot be stored.
"""

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any, NoReturn

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q
from pydantic import ValidationError

from catalog import snapshot
from catalog.access import ADMINISTRATOR
from catalog.errors import MalformedJSON, TooLarge
from catalog.glyphs import split_hidden
from catalog.registry import initialize_tools
from plans.counts import counts_of
from plans.event_words import EventLine, line_of
from plans.executing import executing
from plans.files import read_document
from plans.models import Plan
from plans.private import NOTHING
from plans.problems import Problem, with_lines
from plans.selectors import events_after, is_over
from plans.serializers import PlanDetailSerializer, ProblemSerializer
from plans.services import PlanProblems, Requester, create_plan, problems_of
from plans.spec import PlanDocument
from plans.states import PlanStatus

LOOK_SECONDS = 0.1
FAILED, REFUSED = 1, 2


class Command(BaseCommand):
    """Submit a plan document and follow what comes of it."""

    help = "Submit a plan document (JSON or YAML) and follow it; executes it here unless a server is faster."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the file, who asks, and how long to follow."""
        parser.add_argument("file", type=Path, help="The plan document: .json, .yaml or .yml.")
        parser.add_argument("--wait", action="store_true", help="Follow to the end, also while people are waited for.")
        parser.add_argument("--json", action="store_true", help="Print the plan, or its problems, as one JSON object.")
        parser.add_argument("--user", help="Who asks (the first administrator).")

    def handle(self, *args: Any, **options: Any) -> None:
        """Store the plan, follow it, end with its exit code."""
        initialize_tools()
        if not snapshot.all_current():
            raise CommandError("The catalog is empty: run `python manage.py sync_tools` first.", returncode=REFUSED)
        plan = self._submit(options)
        with executing():
            self._follow(plan, wait=options["wait"], quiet=options["json"])
        if options["json"]:
            shown = PlanDetailSerializer(plan, context={"counts": counts_of([plan]), "private": NOTHING}).data
            self.stdout.write(json.dumps(shown, default=str, ensure_ascii=False))
        if plan.status in (PlanStatus.FAILED, PlanStatus.CANCELLED):
            raise SystemExit(FAILED)

    def _submit(self, options: dict[str, Any]) -> Plan:
        try:
            document, text = read_document(options["file"])
        except MalformedJSON as error:
            raise CommandError(f"line {error.line}, column {error.column}: {error}", returncode=REFUSED) from None
        except (OSError, TooLarge) as error:
            raise CommandError(str(error), returncode=REFUSED) from None
        try:
            return create_plan(PlanDocument.model_validate(document), by=Requester(asker(options["user"]), via="shell"))
        except (ValidationError, PlanProblems):
            found = problems_of(document)
            is_json = options["file"].suffix not in (".yaml", ".yml")
            self._refuse(with_lines(found, text) if is_json else found, as_json=options["json"])

    def _refuse(self, problems: Sequence[Problem], *, as_json: bool) -> NoReturn:
        """Say what is wrong, and end."""
        if as_json:
            found = ProblemSerializer(problems, many=True).data
            self.stdout.write(json.dumps({"valid": False, "problems": found}, ensure_ascii=False))
        for problem in [] if as_json else problems:
            place = f"line {problem.line}, {problem.path}" if problem.line else problem.path
            more = f" {problem.suggestion}" if problem.suggestion else ""
            self.stderr.write(f"{problem.severity}: {place}: {problem.message}{more}")
        raise SystemExit(REFUSED)

    def _follow(self, plan: Plan, *, wait: bool, quiet: bool) -> None:
        """Write a line for each event until the plan is over, or only people can move it and nobody waits for them."""
        seen = 0
        while True:
            plan.refresh_from_db()
            for event in events_after(plan, seen):
                seen = event.seq
                if not quiet:
                    self._say(line_of(event))
            if is_over(plan) and seen == plan.last_seq:
                return
            if not wait and rests_with_people(plan):
                self.stderr.write(f"It waits for people: {settings.TOOLGATE_URL}/plans/{plan.public_id}/")
                return
            sleep(LOOK_SECONDS)

    def _say(self, line: EventLine) -> None:
        said = line.said
        styles = {"ok": self.style.SUCCESS, "danger": self.style.ERROR, "human": self.style.WARNING}
        text = " ".join(filter(None, (said.text, said.stress, said.code)))
        shown = "".join(piece.text for piece in split_hidden(text))
        self.stdout.write(f"{line.seq:>5}  {line.at:%H:%M:%S}  {styles.get(said.hue, str)(shown)}")


def rests_with_people(plan: Plan) -> bool:
    """Say whether nothing of the plan runs or may be claimed: people are waited for, or its start."""
    steps = list(plan.steps.filter(status="in_progress").values_list("waiting_for", "ready_at"))
    held = all(waiting_for in ("approval", "input", "outcome") and ready_at is None for waiting_for, ready_at in steps)
    return plan.status == PlanStatus.PENDING or (
        bool(steps) and held and not plan.steps.filter(ready_at__isnull=False).exists()
    )


def asker(username: str | None) -> User:
    """Return who asks: the user of this name, else the first administrator. Raises CommandError."""
    people = User.objects.filter(is_active=True).order_by("pk")
    administers = Q(is_superuser=True) | Q(groups__name=ADMINISTRATOR)
    found = people.filter(username=username).first() if username else people.filter(administers).first()
    if found is None:
        what = f"There is no active user {username}." if username else "There is no administrator yet: name a --user."
        raise CommandError(what, returncode=REFUSED)
    return found
