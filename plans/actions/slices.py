"""Plan slices: request approval for the next gated steps before they are ready, and approve several of them at once.

Each step has its own call, request, preview and digest, and is approved by its own digest. Only calls whose arguments
are known now are requested; a step that refers to the result of an unfinished step stays gated until that is done.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.policies.eligibility import may_pre_approve
from approvals.policies.gate import gate
from approvals.requests.queries import last_review, request_for
from approvals.reviews.batch import NOT_FOUND_MESSAGE, BatchItem, BatchItemResult, answer_item
from approvals.reviews.confirmation import INDIVIDUAL_REVIEW_REQUIRED, requires_individual_review
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.roles import NotAllowed, acting_token_of
from catalog.core.transactions import retry_on_deadlock
from catalog.dispatch.pipeline import Hold
from catalog.errors import Conflict, ToolError
from catalog.results import Preview
from plans.actions.upcoming import GATED, UpcomingStep, upcoming_steps
from plans.engine import holding, limits
from plans.engine.calls import facts_for_rules, history_of, requesters_of
from plans.engine.holding import preview_unless_stopped
from plans.engine.refusals import require_within_limits
from plans.engine.work import HeldCall, PlanSnapshot, load_snapshot
from plans.models import Plan, Step
from plans.states import PLAN_TERMINAL, StepStatus
from plans.store import statements
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction

MAX_SLICE_STEPS = 20
SECONDS = 25.0
"""Time limit for all previews of one slice together; steps not reached are left for the next request."""
TOO_LATE = "Not all previews could be prepared in time. Ask again for the rest."


@dataclass(frozen=True, slots=True)
class PlanSlice:
    """Requests that can be decided now, in step order; all upcoming steps; and the steps left out, with the reason."""

    requests: Sequence[ApprovalRequest]
    ahead: Sequence[UpcomingStep]
    left: Sequence[tuple[int, str]] = ()


def prepare_slice(plan: Plan, count: int, *, by: User) -> PlanSlice:
    """Request approval for the next `count` gated steps with known arguments; repeated calls return the same requests.

    Includes only steps that `by` might decide, because each request runs a preview and counts against the limits of the
    plan's requester. Previews run outside transactions. Raises Conflict for a plan that has ended or is a single call,
    and NotAllowed if all remaining steps are for others to decide.
    """
    require_open_steps(plan)
    facts, until = load_snapshot(plan.pk), monotonic() + SECONDS
    requests, left = list[ApprovalRequest](), list[tuple[int, NotAllowed | ToolError]]()
    for ahead in upcoming_steps(plan):
        if len(requests) == min(count, MAX_SLICE_STEPS):
            break
        if ahead.is_open and ahead.request is not None and ahead.request.is_pre_approval:
            requests.append(ahead.request)
        elif ahead.kind == GATED:
            try:
                requests += _ask_early(facts, ahead, until, by)
            except (NotAllowed, ToolError) as error:
                left.append((ahead.step.step_id, error))
    for _, refusal in left:
        if not requests and isinstance(refusal, NotAllowed):
            raise refusal
    reasons = [(number, why.user_message() if isinstance(why, ToolError) else why.message) for number, why in left]
    return PlanSlice(requests, upcoming_steps(plan), reasons)


def require_open_steps(plan: Plan) -> None:
    """Raise Conflict for a plan without upcoming steps."""
    if plan.kind == Plan.Kind.CALL:
        raise Conflict("This is a single call, which has no further steps.")
    if Plan.objects.filter(pk=plan.pk, status__in=PLAN_TERMINAL).exists():
        raise Conflict("The plan has ended, so it has no upcoming steps.")


def _ask_early(plan: PlanSnapshot, upcoming: UpcomingStep, until: float, by: User) -> list[ApprovalRequest]:
    """Preview one step and request its approval; return the request.

    If someone else was faster, return the other request. Return an empty list if the step has changed.

    Raises ToolError if the tool refuses the call or a limit is reached, OutsideLimits if `by` acts through a token that
    leaves out the tool, and NotAllowed if `by` could not decide it.
    """
    prepared = upcoming.prepared
    if prepared is None or upcoming.rule is None:
        return []
    require_within_limits(prepared.target, Requester(by, acting_token_of(by), via="rest").ids)  # its preview is run
    why_not = may_pre_approve(upcoming.rule, by, requesters_of(plan, prepared, upcoming.step.pk))
    if why_not is not None:
        raise NotAllowed(why_not)
    if monotonic() > until:
        raise ToolError(TOO_LATE)
    counted = (
        limits.count_call(prepared, plan) if limits.is_rate_limited(prepared) and upcoming.step.call is None else None
    )
    made: ApprovalRequest | None = None
    try:
        made = _store(plan, upcoming, preview_unless_stopped(plan, upcoming.step.step_id, prepared), by)
    except Conflict:
        made = None
    finally:
        if made is None and counted is not None:
            limits.give_back_count(prepared, plan, counted)
    if made is not None:
        return [made]
    by_others = ApprovalRequest.objects.filter(status=RequestStatus.PENDING, is_early=True, ready_at=None)
    return list(by_others.filter(call__step=upcoming.step.pk)[:1])


@retry_on_deadlock
def _store(plan: PlanSnapshot, upcoming: UpcomingStep, preview: Preview | None, by: User) -> ApprovalRequest:
    """Store a held call for the step, which stays pending. Raises Conflict if the step has changed."""
    step, prepared, rule = upcoming.step, upcoming.prepared, upcoming.rule
    if prepared is None or rule is None:
        raise Conflict("This step needs no approval.")
    with plan_transaction(plan.pk, plan.ref) as tx:
        history = history_of(prepared, plan, tx=tx)
        verdict = gate(facts_for_rules(prepared, plan, step.pk, history))
        if history.was_asked:  # judged before as of that moment
            if not isinstance(verdict, Hold):
                raise Conflict("What came before this step has changed.")
            rule = verdict.terms
        hold = HeldCall(statements.load_step(tx.cursor, step.pk), plan, prepared, rule, history=history)
        waits = Step.objects.filter(pk=step.pk, status=StepStatus.PENDING, call=step.call, parameters=step.parameters)
        if not waits.exclude(plan__status__in=PLAN_TERMINAL).exists():
            raise Conflict("The step has changed.")
        call = holding.store_as_held(tx, hold)
        waits.update(call=call)
        return holding.open_approval_request(tx, hold, call, preview, early_by=by)


@dataclass(frozen=True, slots=True)
class SliceItem(BatchItem):
    """One request of a slice; `step_id` and `tool`, if given, must match the request."""

    step_id: int | None = None
    tool: str | None = None

    def is_about(self, request: ApprovalRequest) -> bool:
        call = request.call
        return self.step_id in (None, int(call.step_ref)) and self.tool in (None, call.tool_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalTerms:
    """Approver, comment and channel of a slice approval; `repeated` marks a resend after a lost response."""

    by: User
    comment: str = ""
    channel: Literal["rest", "page"] = "rest"
    repeated: bool = False


def approve_slice(plan: Plan, items: Sequence[SliceItem], terms: ApprovalTerms) -> list[BatchItemResult]:
    """Approve each request by its own digest; return one result for each.

    With `repeated`, a request that the lost first attempt approved is reported as approved, not as a conflict.
    """
    requests = dict[str, ApprovalRequest]()
    for item in items:
        with suppress(ApprovalRequest.DoesNotExist):  # or the person may not see it
            requests[item.id] = request_for(terms.by, item.id)

    def answer(item: SliceItem) -> BatchItemResult:
        request = requests.get(item.id)
        if request is None or request.plan_ref != plan.public_id:
            return BatchItemResult(item.id, "not_found", NOT_FOUND_MESSAGE)
        if not item.is_about(request):
            raise Conflict(f"This request is for step {request.call.step_ref}, {request.call.tool_name}.")
        review = last_review(request) if terms.repeated else None
        given = (review.person_id, review.verdict, review.seen_digest) if review else None
        if given == (terms.by.pk, ReviewVerdict.APPROVE, item.seen_digest):
            return BatchItemResult(item.id, request.status)
        if requires_individual_review(request.policy_revision):
            return BatchItemResult(item.id, "forbidden", INDIVIDUAL_REVIEW_REQUIRED)
        decision = Decision(ReviewVerdict.APPROVE, item.seen_digest, comment=terms.comment, channel=terms.channel)
        return BatchItemResult(item.id, decide(request, by=terms.by, decision=decision).status)

    return [answer_item(item, answer) for item in items]
