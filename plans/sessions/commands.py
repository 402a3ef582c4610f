"""What a call sent to its session is stored with the call's end: in the same transaction, or not at all.

Calls of one session take turns here: each command meets the list as the one before it has left it, so that of two
calls at once both count, or the second is refused as it would be a moment later. The lock on the session comes after
that of the call's own plan, and before the list's plan and its steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F
from pydantic_core import to_jsonable_python

from catalog.access.roles import name_of
from catalog.core import clock
from catalog.core.transactions import try_move
from catalog.dispatch.pipeline import Outcome
from catalog.errors import ToolValidationError
from catalog.models import Call
from catalog.secrets.placeholders import scrub_words
from catalog.states import CallStatus
from catalog.tools.registry import RESERVED_PREFIX
from plans.models import Plan, Step
from plans.planning_tools.todo_list import Command, PlanStep, SetupPlan, carry_out
from plans.planning_tools.todo_list import Plan as Document
from plans.sessions.lists import FIXED, SessionKey, document_of
from plans.states import PlanStatus, StepStatus
from plans.store.database import on_sqlite
from plans.store.requesters import Asker
from plans.store.transactions import Recording, recording, recording_new

LOCKS = 8_043
"""The first half of the keys of PostgreSQL's advisory locks; the second is the session, hashed."""
ORDER = ("pending", "in_progress", "done")
STATUSES = {"pending": StepStatus.PENDING, "in_progress": StepStatus.IN_PROGRESS, "done": StepStatus.COMPLETED}


def taken_in(call: Call, asker: Asker, sent: Sequence[Command], outcome: Outcome) -> Outcome:
    """Store what a call that worked has sent to its session, inside its finish transaction; return how it went then.

    The session is that of `asker`, the caller. A call that has lost its attempt stores nothing. One whose command the
    list does not take any more has failed.
    """
    if not sent or not outcome.success or not _still_runs(call):
        return outcome
    key = SessionKey.of_asker(asker)
    _take_turns(key)
    try:
        with transaction.atomic():
            answers = [_carried_out(key, asker, command) for command in sent]
    except ToolValidationError as refusal:
        text = refusal.user_message()
        said = f"Tool validation failed: {text}"
        failed = replace(outcome, success=False, message=said, error=text, error_kind=refusal.kind, fields={})
        return replace(failed, value=None, rendering=None)
    if not call.tool_name.startswith(RESERVED_PREFIX):  # an author's tool gives what its author says
        return outcome
    document, message = answers[-1]
    return replace(outcome, value=to_jsonable_python(document), message=message, rendering=document.render())


def _still_runs(call: Call) -> bool:
    return Call.objects.filter(pk=call.pk, fence=call.fence, status=CallStatus.RUNNING).exists()


def _take_turns(key: SessionKey) -> None:
    """Wait for the session's turn; on SQLite this transaction has the only one."""
    if on_sqlite():
        return
    whose = f"{key.user_id} {key.agent_token_id} {key.name}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [LOCKS, whose])


def _carried_out(key: SessionKey, asker: Asker, command: Command) -> tuple[Document, str]:
    """Change the session's list. Raises ToolValidationError where it does not take the command."""
    row = key.current_list()
    if row is None:
        document, message = _judged(None, command)
        _set_up_list(asker, document)
        return document, message
    with recording(row.pk, row.public_id) as batch:
        row.refresh_from_db()
        if not row.can_modify:
            raise ToolValidationError(FIXED)
        before = document_of(row)
        document, message = _judged(before, command)
        if isinstance(command, SetupPlan) or _goes_back(before, document):
            _end(row, batch)
            _set_up_list(asker, document, replaced=row)
        else:
            _change(row, batch, before, document)
    return document, message


def _judged(before: Document | None, command: Command) -> tuple[Document, str]:
    """Return the list after a command, without the secrets that its texts may hold, and the message."""
    document, message = carry_out(before, command)
    steps = tuple(replace(step, title=scrub_words(step.title)) for step in document.steps)
    return replace(document, objective=scrub_words(document.objective), steps=steps), message


def _goes_back(before: Document, document: Document) -> bool:
    """Say whether a step goes back to a status that it has left: steps of plans never do, so it needs a new list."""
    pairs = zip(before.steps, document.steps, strict=False)
    return any(ORDER.index(new.status) < ORDER.index(old.status) for old, new in pairs)


def _set_up_list(asker: Asker, document: Document, replaced: Plan | None = None) -> None:
    """Store a new list of the session, under way at once."""
    now = clock.now()
    plan = Plan(
        goal=document.objective, kind=Plan.Kind.SESSION, status=PlanStatus.IN_PROGRESS, author_id=asker.user_id,
        token_id=asker.token_id, via=asker.via, session=asker.session, created_at=now, started_at=now,
        cloned_from=replaced,
    )  # fmt: skip
    with recording_new(plan) as batch:
        told: dict[str, Any] = {"cloned_from": replaced.public_id} if replaced else {}
        batch.add("plan.created", **told)
        batch.add("plan.started")
        _add_steps(plan, batch, document.steps)


def _add_steps(plan: Plan, batch: Recording, steps: Iterable[PlanStep]) -> None:
    added = list(steps)
    Step.objects.bulk_create(_row(plan, step, batch) for step in added)
    for step in added:
        if step.status == "in_progress":
            batch.add("step.started", step.step_id, attempt=1)
        elif step.status == "done":
            batch.add("step.completed", step.step_id)


def _row(plan: Plan, step: PlanStep, batch: Recording) -> Step:
    times = {
        "started_at": batch.now if step.status == "in_progress" else None,
        "completed_at": batch.now if step.status == "done" else None,
    }
    attempt = int(step.status == "in_progress")
    status = STATUSES[step.status]
    return Step(plan=plan, step_id=step.step_id, description=step.title, status=status, attempt=attempt, **times)


def _end(row: Plan, batch: Recording) -> None:
    """End a list that another replaces, where it has not ended."""
    if not try_move(Plan.objects.filter(pk=row.pk), to=PlanStatus.CANCELLED, completed_at=batch.now):
        return
    batch.add("plan.cancelled", reason="Another list took its place.")
    for step in row.steps.filter(status__in=(StepStatus.PENDING, StepStatus.IN_PROGRESS)):
        try_move(Step.objects.filter(pk=step.pk), to=StepStatus.CANCELLED, completed_at=batch.now)
        batch.add("step.cancelled", step.step_id)


def _change(row: Plan, batch: Recording, before: Document, document: Document) -> None:
    """Bring the rows of a list forward to what it is now."""
    known = {step.step_id: step for step in before.steps}
    added = [step for step in document.steps if step.step_id not in known]
    edited = [step for step in document.steps if step.step_id in known and step.title != known[step.step_id].title]
    moved = [step for step in document.steps if step.step_id in known and step.status != known[step.step_id].status]
    for step in edited:
        row.steps.filter(step_id=step.step_id).update(description=step.title)
    _add_steps(row, batch, added)
    told: dict[str, Any] = {"added": [step.step_id for step in added], "edited": [step.step_id for step in edited]}
    if added or edited:
        by = name_of(User.objects.get(pk=row.author_id))
        batch.add("plan.changed", by=by, **{name: said for name, said in told.items() if said})
    for step in moved:
        _move(row, batch, step)
    if document.status == "completed":
        try_move(Plan.objects.filter(pk=row.pk), to=PlanStatus.COMPLETED, completed_at=batch.now)
        batch.add("plan.completed")


def _move(row: Plan, batch: Recording, step: PlanStep) -> None:
    rows = Step.objects.filter(plan=row, step_id=step.step_id)
    if step.status == "in_progress":
        try_move(rows, to=StepStatus.IN_PROGRESS, started_at=batch.now, attempt=F("attempt") + 1)
        batch.add("step.started", step.step_id, attempt=1)
    else:
        try_move(rows, to=StepStatus.COMPLETED, completed_at=batch.now)
        batch.add("step.completed", step.step_id)
