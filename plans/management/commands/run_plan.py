"""`manage.py run_plan FILE`: submit a plan from the shell and follow it, one line for each step.

Exit codes: 0 if the plan completed, 1 if it failed or was cancelled, 2 if it cannot be stored, 3 if it has not ended
(it waits for people or is paused, without --wait), 130 after Ctrl+C, 143 after SIGTERM.
"""

import json
import logging
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from pydantic import ValidationError

from catalog.access.people import administrators
from catalog.access.roles import find_active_user
from catalog.errors import MalformedJSON, TooLarge
from catalog.inventory import snapshot
from catalog.tools.registry import initialize_tools
from plans.actions.create import PlanProblems, check_document, create_plan
from plans.api.serializers import PlanDetailSerializer, PlanProblemSerializer
from plans.documents.checking import with_lines
from plans.documents.files import read_document
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
from toolgate.places import COMMAND

POLL_SECONDS = 0.1
REDRAW_SECONDS = 1.0
COMPLETED, FAILED, REFUSED, LEFT, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES: dict[str, int] = {PlanStatus.COMPLETED: COMPLETED, PlanStatus.FAILED: FAILED, PlanStatus.CANCELLED: FAILED}
LOG_VERBOSITY = 2
"""Verbosity from which log lines are printed as well."""
PLAN_ID = re.compile(r"plan_[\w-]+")


class Command(BaseCommand):
    help = "Submit a plan document (JSON or YAML) and follow it. Its steps run in this process or on other workers."
    wait = staticmethod(sleep)
    """Called with POLL_SECONDS between two checks of the plan."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file", type=Path, help="The plan document (.json, .yaml, .yml), or the id of a stored plan."
        )
        parser.add_argument("--wait", action="store_true", help="Follow to the end, even while it waits for people.")
        parser.add_argument(
            "--json", action="store_true", help="Print the plan, or its problems, as one JSON document."
        )
        parser.add_argument("--user", help="The user who submits the plan (default: the first administrator).")

    def handle(self, *args: Any, **options: Any) -> None:
        with _logging(verbose=options["verbosity"] >= LOG_VERBOSITY):
            code = self._run(options)
        if code:
            raise SystemExit(code)

    def _run(self, options: dict[str, Any]) -> int:
        refuse_without_migrations()
        refuse_a_restored_database()
        initialize_tools()
        if not snapshot.callable_tools():
            raise CommandError(f"The catalog is empty. Run `{COMMAND} sync_tools` first.", returncode=REFUSED)
        with run_executor():  # started first, so that its threads are notified of the plan
            plan = self._stored(options["file"]) or self._submit(options)
            try:
                interrupted = self._follow(plan, wait=options["wait"], quiet=options["json"])
            except SystemExit:
                self._say_how_to_follow(plan)
                raise
        plan.refresh_from_db()
        if options["json"]:
            document = PlanDetailSerializer(
                plan, context={"counts": step_counts([plan]), "private": NOTHING_PRIVATE, "viewer": plan.author}
            ).data
            self.stdout.write(json.dumps(document, default=str, ensure_ascii=False))
        return INTERRUPTED if interrupted else EXIT_CODES.get(plan.status, LEFT)

    def _stored(self, file: Path) -> Plan | None:
        """Return the plan if an id was given, or None for a file. Raises CommandError."""
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
            problems = with_lines(found, text) if is_json else found
        if options["json"]:
            listed = PlanProblemSerializer(problems, many=True).data
            self.stdout.write(json.dumps({"valid": False, "problems": listed}, ensure_ascii=False))
        for problem in [] if options["json"] else problems:
            place = f"line {problem.line}, {problem.path}" if problem.line else problem.path
            more = f" {problem.suggestion}" if problem.suggestion else ""
            self.stderr.write(f"{problem.severity}: {place}: {problem.message}{more}")
        raise SystemExit(REFUSED)

    def _follow(self, plan: Plan, *, wait: bool, quiet: bool) -> bool:
        """Show progress until the plan has ended or (without `wait`) waits for people; return True after Ctrl+C."""
        styles = {"ok": self.style.SUCCESS, "danger": self.style.ERROR, "human": self.style.WARNING}
        progress = None if quiet else ProgressDisplay(self._say, styles)
        seen, drawn_at = -1, float("-inf")
        try:  # the plan may be running from here on, so an interruption says so
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
                f"The plan continues without this command. Follow it at {plan_address(overview.load_overview(plan))}"
            )
        return False

    def _say_how_to_follow(self, plan: Plan) -> None:
        """Print, after Ctrl+C or SIGTERM, that the plan continues and where to follow it.

        The signal may have interrupted a statement, which makes the connection unusable.
        """
        connection.close()
        self.stderr.write(
            "\nThe plan is not cancelled. Steps running here will finish; servers and workers run the rest.\n"
            f"Follow it at {plan_address(overview.load_overview(plan))}\n"
            f"or with `{COMMAND} run_plan {plan.public_id} --wait`."
        )

    def _say(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()


@contextmanager
def _logging(*, verbose: bool) -> Iterator[None]:
    """Silence log lines below errors unless wanted, because the display shows the same."""
    log = logging.getLogger("toolgate")
    before = log.level
    if not verbose:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def is_finished(plan: Plan) -> bool:
    """Return whether the plan has ended and no step is still claimed by a worker."""
    return is_over(plan) and not plan.steps.exclude(claimed_by="").exists()


def waits_for_people(plan: Plan) -> bool:
    """Return whether only people can advance the plan: nothing runs and nothing can be claimed."""
    if plan.paused_at is not None:
        return not plan.steps.exclude(claimed_by="").exists()
    steps = list(plan.steps.filter(status="in_progress").values_list("waiting_for", "ready_at"))
    held = all(waiting_for in ("approval", "input", "outcome") and ready_at is None for waiting_for, ready_at in steps)
    return plan.status == PlanStatus.PENDING or (
        bool(steps) and held and not plan.steps.filter(ready_at__isnull=False).exists()
    )


def find_requester(username: str | None) -> User:
    """Return the user of this name, or the first administrator. Raises CommandError."""
    found = find_active_user(username) if username else administrators().order_by("pk").first()
    if found is None:
        what = f"There is no active user {username}." if username else "There is no administrator. Use --user."
        raise CommandError(what, returncode=REFUSED)
    return found
