"""`manage.py run_plan FILE`: submit a plan from the shell and follow it, a line for each step.

Ends with 0 only when the plan completed; 1 when it failed or was cancelled, 2 when it cannot be stored, 3 when it was
left before its end (it waits for people or is paused, and there is no --wait), 130 after Ctrl+C, 143 after SIGTERM.
"""

import json
import logging
import re
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NoReturn

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.models import Q
from pydantic import ValidationError

from catalog.access.roles import ADMINISTRATOR
from catalog.errors import MalformedJSON, TooLarge
from catalog.inventory import snapshot
from catalog.tools.registry import initialize_tools
from plans.actions.create import PlanProblems, check_document, create_plan
from plans.api.serializers import PlanDetailSerializer, PlanProblemSerializer
from plans.documents.checking import with_lines
from plans.documents.files import read_document
from plans.documents.reading import Problem
from plans.engine import hints
from plans.executor.lifecycle import run_executor
from plans.management.preconditions import refuse_a_restored_database, refuse_without_migrations
from plans.management.progress import ProgressDisplay, plan_address
from plans.models import Plan
from plans.spec import PlanDocument
from plans.states import PlanStatus
from plans.store.privacy import NOTHING_PRIVATE
from plans.store.requesters import Requester
from plans.store.selectors import is_over, step_counts
from plans.web.plan import overview

POLL_SECONDS = 0.1
REDRAW_SECONDS = 1.0
COMPLETED, FAILED, REFUSED, LEFT, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES: dict[str, int] = {PlanStatus.COMPLETED: COMPLETED, PlanStatus.FAILED: FAILED, PlanStatus.CANCELLED: FAILED}
LOG_VERBOSITY = 2
"""The verbosity from which on log lines are written beside the display."""
PLAN_ID = re.compile(r"plan_[\w-]+")


class Command(BaseCommand):
    """Submit a plan document and follow what comes of it."""

    help = "Submit a plan document (JSON or YAML) and follow it; what is ready runs here, or wherever else it is taken."
    wait = staticmethod(sleep)
    """Called with `LOOK_SECONDS` between two looks at the plan."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the file, who asks, and how long to follow."""
        parser.add_argument(
            "file", type=Path, help="The plan document (.json, .yaml, .yml), or the id of a stored plan."
        )
        parser.add_argument("--wait", action="store_true", help="Follow to the end, also while people are waited for.")
        parser.add_argument(
            "--json", action="store_true", help="Print the plan, or its problems, as one JSON document."
        )
        parser.add_argument("--user", help="Who asks (the first administrator).")

    def handle(self, *args: Any, **options: Any) -> None:
        """Store the plan, follow it, end with its exit code."""
        with _logging(wanted=options["verbosity"] >= LOG_VERBOSITY):
            code = self._run(options)
        if code:
            raise SystemExit(code)

    def _run(self, options: dict[str, Any]) -> int:
        refuse_without_migrations()
        refuse_a_restored_database()
        initialize_tools()
        if not snapshot.callable_tools():
            raise CommandError("The catalog is empty: run `python manage.py sync_tools` first.", returncode=REFUSED)
        with run_executor():  # first, so that its threads hear of the plan
            plan = self._stored(options["file"]) or self._submit(options)
            try:
                interrupted = self._follow(plan, wait=options["wait"], quiet=options["json"])
            except SystemExit:
                self._say_how_to_follow(plan)
                raise
        plan.refresh_from_db()
        if options["json"]:
            shown = PlanDetailSerializer(
                plan, context={"counts": step_counts([plan]), "private": NOTHING_PRIVATE, "viewer": plan.author}
            ).data
            self.stdout.write(json.dumps(shown, default=str, ensure_ascii=False))
        return INTERRUPTED if interrupted else EXIT_CODES.get(plan.status, LEFT)

    def _stored(self, file: Path) -> Plan | None:
        """Return the plan whose id was given in place of a file, None for a file. Raises CommandError."""
        if file.exists() or not PLAN_ID.fullmatch(str(file)):
            return None
        plan = Plan.objects.filter(public_id=str(file)).first()
        if plan is None:
            raise CommandError(f"There is neither a file nor a plan called {file}.", returncode=REFUSED)
        hints.deliver_now(plan.pk, hints.HINTS_AT_MOST)
        return plan

    def _submit(self, options: dict[str, Any]) -> Plan:
        try:
            document, text = read_document(options["file"])
        except MalformedJSON as error:
            raise CommandError(f"line {error.line}, column {error.column}: {error}", returncode=REFUSED) from None
        except (OSError, TooLarge) as error:
            raise CommandError(str(error), returncode=REFUSED) from None
        try:
            return create_plan(
                PlanDocument.model_validate(document), by=Requester(find_requester(options["user"]), via="shell")
            )
        except (ValidationError, PlanProblems):
            found = check_document(document, by=Requester(find_requester(options["user"])))
            is_json = options["file"].suffix not in (".yaml", ".yml")
            self._refuse(with_lines(found, text) if is_json else found, as_json=options["json"])

    def _refuse(self, problems: Sequence[Problem], *, as_json: bool) -> NoReturn:
        """Say what is wrong, and end."""
        if as_json:
            found = PlanProblemSerializer(problems, many=True).data
            self.stdout.write(json.dumps({"valid": False, "problems": found}, ensure_ascii=False))
        for problem in [] if as_json else problems:
            place = f"line {problem.line}, {problem.path}" if problem.line else problem.path
            more = f" {problem.suggestion}" if problem.suggestion else ""
            self.stderr.write(f"{problem.severity}: {place}: {problem.message}{more}")
        raise SystemExit(REFUSED)

    def _follow(self, plan: Plan, *, wait: bool, quiet: bool) -> bool:
        """Show the plan until it is over, or only people can move it and nobody waits; True when Ctrl+C ended that."""
        progress = None if quiet else self._progress()
        seen, drawn_at = -1, float("-inf")
        try:  # from here on the plan may be running, and whoever stops this is told so
            if progress is not None:
                progress.begin(overview.load_overview(plan))
            while True:
                plan.refresh_from_db()
                if progress is not None and (plan.last_seq != seen or monotonic() - drawn_at > REDRAW_SECONDS):
                    progress.show(overview.load_overview(plan))
                    seen, drawn_at = plan.last_seq, monotonic()
                if is_finished(plan) or (not wait and waits_for_people(plan)):
                    break
                self.wait(POLL_SECONDS)
        except KeyboardInterrupt:
            self._say_how_to_follow(plan)
            return True
        if progress is not None:
            progress.show(overview.load_overview(plan))
            progress.end(overview.load_overview(plan))
        if not is_over(plan):
            self.stderr.write(
                f"It goes on without this command. Follow it at {plan_address(overview.load_overview(plan))}"
            )
        return False

    def _say_how_to_follow(self, plan: Plan) -> None:
        """Say, after Ctrl+C or SIGTERM, that the plan goes on and where to follow it.

        They may have come in the middle of a statement: that connection answers nothing more.
        """
        connection.close()
        self.stderr.write(
            "\nThe plan is not cancelled: what runs here is finished first, the rest is left to servers and workers.\n"
            f"Follow it at {plan_address(overview.load_overview(plan))}\n"
            f"or with `python manage.py run_plan {plan.public_id} --wait`."
        )

    def _progress(self) -> ProgressDisplay:
        styles = {"ok": self.style.SUCCESS, "danger": self.style.ERROR, "human": self.style.WARNING}
        return ProgressDisplay(self._say, styles)

    def _say(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()


@contextmanager
def _logging(*, wanted: bool) -> Iterator[None]:
    """Keep log lines out of the display, which says the same, unless they are wanted."""
    log = logging.getLogger("toolgate")
    before = log.level
    if not wanted:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def is_finished(plan: Plan) -> bool:
    """Say whether the plan is over, and nothing that ran when it ended is still to be told of."""
    return is_over(plan) and not plan.steps.exclude(claimed_by="").exists()


def waits_for_people(plan: Plan) -> bool:
    """Say whether nothing of the plan runs or may be claimed: people are waited for, its start, or its resume."""
    if plan.paused_at is not None:
        return not plan.steps.exclude(claimed_by="").exists()
    steps = list(plan.steps.filter(status="in_progress").values_list("waiting_for", "ready_at"))
    held = all(waiting_for in ("approval", "input", "outcome") and ready_at is None for waiting_for, ready_at in steps)
    return plan.status == PlanStatus.PENDING or (
        bool(steps) and held and not plan.steps.filter(ready_at__isnull=False).exists()
    )


def find_requester(username: str | None) -> User:
    """Return who asks: the user of this name, else the first administrator. Raises CommandError."""
    people = User.objects.filter(is_active=True).order_by("pk")
    administers = Q(is_superuser=True) | Q(groups__name=ADMINISTRATOR)
    found = people.filter(username=username).first() if username else people.filter(administers).first()
    if found is None:
        what = f"There is no active user {username}." if username else "There is no administrator yet: name a --user."
        raise CommandError(what, returncode=REFUSED)
    return found
