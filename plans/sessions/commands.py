"""Storing the commands that a call sent to its session, in the transaction that finishes the call.

Calls of one session are serialized by a lock, so each command is applied to the result of the one before. Lock order:
the call's own plan, the session, then the list's plan and its steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from pydantic_core import to_jsonable_python

from catalog.access.roles import user_display_name
from catalog.core import clock
from catalog.core.locks import LockSpace, lock_until_commit
from catalog.core.transactions import try_move
from catalog.dispatch.pipeline import CallOutcome
from catalog.errors import ToolValidationError
from catalog.models import Call
from catalog.secrets.placeholders import redact_text
from catalog.states import CallStatus
from catalog.tools.registry import RESERVED_PREFIX
from plans.models import Plan, Step
from plans.planning_tools.todo_list import Command, PlanStep, SetupPlan, carry_out
from plans.planning_tools.todo_list import Plan as Document
from plans.sessions.lists import FIXED, SessionKey, list_document
from plans.states import PlanStatus, StepStatus
from plans.store.requesters import RequesterIds
from plans.store.transactions import PlanTransaction, new_plan_transaction, plan_transaction

STATUS_ORDER = ("pending", "in_progress", "done")
STATUSES = {"pending": StepStatus.PENDING, "in_progress": StepStatus.IN_PROGRESS, "done": StepStatus.COMPLETED}


def apply_sent_commands(
    call: Call, requester: RequesterIds, commands: Sequence[Command], outcome: CallOutcome
) -> CallOutcome:
    """Apply the commands of a successful call to the session of `requester`; return the call's outcome.

    Runs inside the transaction that finishes the call. If the call's attempt no longer counts, nothing is stored. If
    the list refuses a command, the outcome becomes a failure.
    """
    still_running = Call.objects.filter(pk=call.pk, fence=call.fence, status=CallStatus.RUNNING)
    if not commands or not outcome.success or not still_running.exists():
        return outcome
    key = SessionKey.of_requester(requester)
    lock_until_commit(LockSpace.SESSION, f"{key.user_id} {key.agent_token_id} {key.name}")
    try:
        with transaction.atomic():
            answers = [_apply_command(key, requester, command) for command in commands]
    except ToolValidationError as refusal:
        text = refusal.user_message()
        message = f"Tool validation failed: {text}"
        failed = replace(outcome, success=False, message=message, error=text, error_kind=refusal.kind, fields={})
        return replace(failed, value=None, rendering=None)
    if not call.tool_name.startswith(RESERVED_PREFIX):  # only the planning tools return the stored list
        return outcome
    document, message = answers[-1]
    return replace(outcome, value=to_jsonable_python(document), message=message, rendering=document.render())


def _apply_command(key: SessionKey, requester: RequesterIds, command: Command) -> tuple[Document, str]:
    row = key.current_list()
    if row is None:
        document, message = _list_after_command(None, command)
        _set_up_list(requester, document)
        return document, message
    with plan_transaction(row.pk, row.public_id) as tx:
        row.refresh_from_db()
        if not row.can_modify:
            raise ToolValidationError(FIXED)
        before = list_document(row)
        document, message = _list_after_command(before, command)
        # Rows of steps cannot return to an earlier status, so a new list is stored instead.
        pairs = zip(before.steps, document.steps, strict=False)
        is_reverted = any(STATUS_ORDER.index(new.status) < STATUS_ORDER.index(old.status) for old, new in pairs)
        if isinstance(command, SetupPlan) or is_reverted:
            # The old list is cancelled unless it has already ended.
            if try_move(Plan.objects.filter(pk=row.pk), to=PlanStatus.CANCELLED, completed_at=tx.now):
                tx.record("plan.cancelled", reason="Replaced by another list.")
                for step in row.steps.filter(status__in=(StepStatus.PENDING, StepStatus.IN_PROGRESS)):
                    try_move(Step.objects.filter(pk=step.pk), to=StepStatus.CANCELLED, completed_at=tx.now)
                    tx.record("step.cancelled", step.step_id)
            _set_up_list(requester, document, replaced_plan=row)
        else:
            _change_list(row, tx, before, document)
    return document, message


def _change_list(plan: Plan, tx: PlanTransaction, old_document: Document, document: Document) -> None:
    known = {step.step_id: step for step in old_document.steps}
    added = [step for step in document.steps if step.step_id not in known]
    kept = [step for step in document.steps if step.step_id in known]
    edited = [step for step in kept if step.title != known[step.step_id].title]
    for step in edited:
        plan.steps.filter(step_id=step.step_id).update(description=step.title)
    _add_steps(plan, tx, added)
    named = {"added": added, "edited": edited}
    changes: dict[str, Any] = {name: [step.step_id for step in steps] for name, steps in named.items() if steps}
    if changes:
        by = user_display_name(User.objects.get(pk=plan.author_id))
        tx.record("plan.changed", by=by, **changes)
    for step in kept:
        if step.status == known[step.step_id].status:
            continue
        rows = Step.objects.filter(plan=plan, step_id=step.step_id)
        if step.status == "in_progress":
            try_move(rows, to=StepStatus.IN_PROGRESS, started_at=tx.now, attempt=F("attempt") + 1)
            tx.record("step.started", step.step_id, attempt=1)
        else:
            try_move(rows, to=StepStatus.COMPLETED, completed_at=tx.now)
            tx.record("step.completed", step.step_id)
    if document.status == "completed":
        try_move(Plan.objects.filter(pk=plan.pk), to=PlanStatus.COMPLETED, completed_at=tx.now)
        tx.record("plan.completed")


def _list_after_command(old_document: Document | None, command: Command) -> tuple[Document, str]:
    document, message = carry_out(old_document, command)
    steps = tuple(replace(step, title=redact_text(step.title)) for step in document.steps)
    return replace(document, objective=redact_text(document.objective), steps=steps), message


def _set_up_list(requester: RequesterIds, document: Document, replaced_plan: Plan | None = None) -> None:
    now = clock.now()
    plan = Plan(
        goal=document.objective, kind=Plan.Kind.SESSION, status=PlanStatus.IN_PROGRESS, author_id=requester.user_id,
        token_id=requester.token_id, via=requester.via, session=requester.session, created_at=now, started_at=now,
        cloned_from=replaced_plan,
    )  # fmt: skip
    with new_plan_transaction(plan) as tx:
        event_data: dict[str, Any] = {"cloned_from": replaced_plan.public_id} if replaced_plan else {}
        tx.record("plan.created", **event_data)
        tx.record("plan.started")
        _add_steps(plan, tx, document.steps)


def _add_steps(plan: Plan, tx: PlanTransaction, steps: Iterable[PlanStep]) -> None:
    added = list(steps)
    Step.objects.bulk_create(
        Step(
            plan=plan,
            step_id=step.step_id,
            description=step.title,
            status=STATUSES[step.status],
            attempt=int(step.status == "in_progress"),
            started_at=tx.now if step.status == "in_progress" else None,
            completed_at=tx.now if step.status == "done" else None,
        )
        for step in added
    )
    for step in added:
        if step.status == "in_progress":
            tx.record("step.started", step.step_id, attempt=1)
        elif step.status == "done":
            tx.record("step.completed", step.step_id)
