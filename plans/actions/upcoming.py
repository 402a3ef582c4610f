"""Upcoming steps of a plan: which run without approval, which need it, and which can be approved now."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from approvals.models import ApprovalRequest, Grant
from approvals.policies.gate import gate
from approvals.policies.rulebook import Rule
from approvals.states import RequestStatus
from catalog.dispatch import pipeline
from catalog.dispatch.arguments import stored_arguments
from catalog.errors import ToolError
from catalog.inventory import snapshot
from catalog.tools.registry import output_key_of
from plans.documents import references
from plans.engine import admission, calls, grants
from plans.engine.admission import CallSituation, classify
from plans.engine.work import PlanSnapshot, PreparedCall, load_snapshot
from plans.models import MemoryItem, Plan, Step
from plans.states import StepStatus, WaitingFor
from plans.store.statements import ClaimedStep

ALONE, GATED, LATER, ASKED, WAITS, APPROVED, STOPS = "alone", "gated", "later", "asked", "waits", "approved", "stops"
"""Kinds of upcoming steps: runs without approval; approval can be requested now; will need approval once its arguments
are known; approval requested early; its step waits for approval; answered, but not started; will be refused as things
stand."""
OPEN = (StepStatus.PENDING, StepStatus.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class UpcomingStep:
    """One step that has not ended: what happens next, why, and its approval request, if any."""

    step: Step
    kind: str
    why: str = ""
    request: ApprovalRequest | None = None
    prepared: PreparedCall | None = None
    rule: Rule | None = None

    @property
    def is_open(self) -> bool:
        return self.request is not None and self.request.status == RequestStatus.PENDING


def upcoming_steps(plan: Plan) -> list[UpcomingStep]:
    rows = plan.steps.filter(status__in=OPEN).select_related("call__approval").order_by("step_id")
    view = _UpcomingSteps(load_snapshot(plan.pk), list(rows))
    return [view.of(step) for step in view.steps]


class _UpcomingSteps:
    """Snapshot of a plan: its facts, its open steps, and the step that will write each key of its memory."""

    def __init__(self, plan: PlanSnapshot, steps: Sequence[Step]) -> None:
        self.facts = plan
        self.steps = steps
        self.writers = {
            key: step.step_id for step in reversed(steps) if (key := step.expected_key or output_key_of(step.tool))
        }
        known = MemoryItem.objects.filter(plan=plan.pk, type=MemoryItem.Type.VALUE)
        self.known = set(known.values_list("key", flat=True))

    def of(self, step: Step) -> UpcomingStep:
        request = getattr(step.call, "approval", None) if step.call else None
        if step.status == StepStatus.IN_PROGRESS:
            if step.waiting_for != WaitingFor.APPROVAL or request is None:
                why = f"Waiting: {step.get_waiting_for_display().lower()}." if step.waiting_for else "In progress."
                if step.waiting_for == WaitingFor.CALLS:
                    why = "Its agent is waiting for its calls."
                return UpcomingStep(step, ALONE, why)
            return UpcomingStep(step, WAITS if request.status == RequestStatus.PENDING else APPROVED, request=request)
        if request is not None and step.call is not None:
            match classify(step.call):
                case CallSituation.EARLY:
                    return UpcomingStep(
                        step, ASKED if request.status == RequestStatus.PENDING else APPROVED, request=request
                    )
                case CallSituation.EARLY_ANSWERED:
                    return UpcomingStep(step, STOPS, step.call.message, request)
        return self._unasked(step)

    def _unasked(self, step: Step) -> UpcomingStep:
        if step.agent:
            return UpcomingStep(step, ALONE, f"The agent {step.agent} may make calls that need approval.")
        if not step.tool:
            return UpcomingStep(step, ALONE, "This step is a note and calls no tool.")
        try:
            missing = self._missing(step)
            if missing is not None:
                return self._later(step, missing)
            claimed_step = replace(ClaimedStep.from_row(step), attempt=step.attempt + 1)
            prepared = calls.prepare_step_call(self.facts, claimed_step)
        except ToolError as error:
            return UpcomingStep(step, STOPS, error.user_message())
        return self._judged(step, prepared)

    def _missing(self, step: Step) -> references.Reference | None:
        """Return the first reference whose value is missing or may still change."""
        if "${" not in step.parameters:
            return None
        needed = references.find(step.parameters_json)
        unsure = {key for key, writer in self.writers.items() if writer != step.step_id}
        return next((each for each in needed if each.key not in self.known or each.key in unsure), None)

    def _later(self, step: Step, reference: references.Reference) -> UpcomingStep:
        """Return a step whose arguments are not complete yet."""
        writer = self.writers.get(reference.key)
        source = f"the result of step {writer}" if writer else "a memory key that is not set yet"
        why = f"Its arguments come from {source}: {reference}."
        target = snapshot.callable_tool(step.tool)
        if target is None:
            return UpcomingStep(step, STOPS, f"There is no tool {step.tool}.")
        arguments = stored_arguments(target.tool.validator, step.parameters_json, None)
        prepared = PreparedCall(target, arguments, step.parameters)
        runs = isinstance(gate(calls.facts_for_rules(prepared, self.facts, step.pk)), pipeline.Allow)
        return UpcomingStep(step, ALONE if runs else LATER, why)

    def _judged(self, step: Step, prepared: PreparedCall) -> UpcomingStep:
        verdict = gate(calls.facts_for_rules(prepared, self.facts, step.pk))
        if isinstance(verdict, pipeline.Deny):
            return UpcomingStep(step, STOPS, verdict.message)
        if isinstance(verdict, pipeline.Allow):
            return UpcomingStep(step, ALONE)
        covering = grants.coverage_of(self.facts, prepared, verdict.terms, step.pk)
        if covering is not None:
            noun = "grant" if isinstance(covering, Grant) else "envelope"
            return UpcomingStep(step, ALONE, f"The {noun} {covering.public_id} covers it.")
        if admission.rejected_request(self.facts.ref, prepared) is not None:
            return UpcomingStep(step, STOPS, "The same call was rejected before in this plan.")
        if step.given_arguments:
            return UpcomingStep(step, LATER, "It will be retried with arguments that a person gave.")
        if step.call is not None:  # an early call that was not approved
            prepared = replace(prepared, replaces=step.call, asker=calls.requester_ids_of(step.call))
        return UpcomingStep(step, GATED, prepared=prepared, rule=verdict.terms)
