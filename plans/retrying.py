"""Retrying: what failed becomes pending again, with what depends on it, and the plan goes on from there.

A retried step is begun anew: its check is looked at again, its references are read again, and its next call, which
replaces the old one, passes the gate as any other. What is dangerous is asked about again. Completed steps stay.
"""

from collections.abc import Mapping
from datetime import timedelta

from django.db.models import Case, DateTimeField, F, Value, When
from django.db.models.functions import Coalesce

from approvals.witness import refuse_to_begin
from catalog.access import name_of
from catalog.canonical import time_text
from catalog.errors import Conflict
from catalog.retries import retried
from catalog.transitions import move, try_move
from plans import carriers, finishing
from plans.agents.loop import end_run
from plans.askers import ask_for
from plans.documents import words_of_call
from plans.events import Recording, recording
from plans.models import Plan, Step, StepDependency
from plans.order import descendants
from plans.services import Requester
from plans.states import PlanStatus, StepStatus, WaitingFor

STOPPED = (StepStatus.FAILED, StepStatus.CANCELLED)
TOO_LATE: Mapping[str, str] = {
    PlanStatus.PENDING: "The plan has not started: there is nothing to retry.",
    PlanStatus.COMPLETED: "The plan is done: there is nothing to retry. Clone it to run it again.",
    PlanStatus.CANCELLED: "The plan was cancelled, and stays so. Clone it to run it again.",
}


@retried
def retry_plan(plan: Plan, step_id: int | None = None, *, by: Requester) -> None:
    """Let a plan go on from one failed step, or from all of them; a failed plan is in progress again.

    A plan that had failed gets its deadline's span again from now on. Raises Step.DoesNotExist, and Conflict when
    there is nothing to retry (any more) or when a person has to say first what happened.
    """
    refuse_to_begin()
    with recording(plan.pk, plan.public_id) as batch:
        plan.refresh_from_db()
        if plan.status in TOO_LATE:
            raise Conflict(TOO_LATE[plan.status])
        steps = _all_stopped(plan) if step_id is None else _from_step(plan, step_id)
        if plan.status == PlanStatus.FAILED:
            _reopen(plan, batch, by)
        _try_again(plan, steps, batch, by)
        finishing.settle_plan(batch)


def _all_stopped(plan: Plan) -> list[Step]:
    """Return the steps that failed or were cancelled; a plan whose time ran out as its last step ended has none.

    What an agent called is not tried again by itself: the agent is told of it, and decides.
    """
    steps = list(plan.steps.filter(status__in=STOPPED, parent=None))
    if steps:
        return steps
    unknown = plan.steps.filter(waiting_for=WaitingFor.OUTCOME).values_list("step_id", flat=True).first()
    if unknown is not None:
        raise _must_be_settled(unknown)
    if plan.status != PlanStatus.FAILED:
        raise Conflict("No step of this plan has failed.")
    return []


def _from_step(plan: Plan, step_id: int) -> list[Step]:
    """Return the step and what depends on it, as far as it was stopped."""
    step = plan.steps.select_related("parent").get(step_id=step_id)
    if step.parent is not None:
        agents = step.parent.step_id
        raise Conflict(f"{words_of_call(step_id, agents)}, which decides what follows: retry step {agents}.")
    if step.waiting_for == WaitingFor.OUTCOME:
        raise _must_be_settled(step_id)
    if step.status not in STOPPED:
        raise Conflict(f"Step {step_id} has not failed: it is {step.get_status_display().lower()}.")
    first = step.dependencies.filter(needs__status__in=STOPPED).values_list("needs__step_id", flat=True).first()
    if first is not None:
        raise Conflict(f"Step {step_id} needs step {first}, which has stopped too: retry that one.")
    arrows = StepDependency.objects.filter(step__plan=plan).values_list("needs_id", "step_id")
    return list(plan.steps.filter(pk__in={step.pk} | descendants(step.pk, arrows), status__in=STOPPED))


def _must_be_settled(step_id: int) -> Conflict:
    return Conflict(
        f"Nobody knows whether the call of step {step_id} took effect, so it is not retried. Say what happened: that "
        "it did, that it did not, or that it is to be asked for again."
    )


def _reopen(plan: Plan, batch: Recording, by: Requester) -> None:
    """Let a failed plan go on, with as much time and as large a budget as it had at first."""
    span = timedelta(seconds=plan.deadline_seconds) if plan.deadline_seconds else None
    if span is None and plan.deadline_at is not None:
        span = plan.deadline_at - plan.created_at
    failed = Plan.objects.filter(pk=plan.pk, status=PlanStatus.FAILED)
    deadline_at = batch.now + span if span else None
    move(failed, to=PlanStatus.IN_PROGRESS, completed_at=None, deadline_at=deadline_at, calls_used=0, seconds_used=0.0)
    batch.add("plan.resumed", by=name_of(by.user), retry=True)


def _try_again(plan: Plan, steps: list[Step], batch: Recording, by: Requester) -> None:
    """Make the steps pending as if they had not been begun; their attempts go on counting, for they are the fence."""
    _see_that_agents_are_done(steps)
    rows = Step.objects.filter(pk__in=[step.pk for step in steps])
    now_ready = Case(When(dependencies_left=0, then=Value(batch.now)), output_field=DateTimeField())
    moved = try_move(
        rows, to=StepStatus.PENDING, ready_at=now_ready, retry_of=Coalesce(F("call"), F("retry_of")), call=None,
        error="", started_at=None, completed_at=None, waiting_since=None, crashes=0,
    )  # fmt: skip
    if moved != len(steps):
        raise Conflict("A step went on meanwhile. Nothing was retried; look again.")
    end_run([step.pk for step in steps if step.agent], batch)
    for step in steps:
        batch.add("step.retrying", step.step_id, by=name_of(by.user), **_earlier_try(step))
    ask_for(plan, [step.step_id for step in steps], by=by)
    carriers.hint(plan.pk, max(1, sum(not step.dependencies_left for step in steps)))


def _see_that_agents_are_done(steps: list[Step]) -> None:
    """Let no agent go on while a call of it has not ended: it could not be told what came of that."""
    agents = [step.pk for step in steps if step.agent]
    going = Step.objects.filter(parent__in=agents, status__in=(StepStatus.PENDING, StepStatus.IN_PROGRESS))
    call = going.select_related("parent").first() if agents else None
    if call is None or call.parent is None:
        return
    if call.waiting_for == WaitingFor.OUTCOME:
        raise _must_be_settled(call.step_id)
    raise Conflict(f"{words_of_call(call.step_id, call.parent.step_id)}, and has not ended yet. Retry it after that.")


def _earlier_try(step: Step) -> dict[str, str]:
    """Say when the step was tried before, for the history."""
    if step.started_at is None or step.completed_at is None:
        return {}
    return {"began": time_text(step.started_at), "ended": time_text(step.completed_at)}
