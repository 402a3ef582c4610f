"""Drafts: a request in words, the planner's result, and the plan started from it.

A draft is a call of the tool `draft_plan` and is identified by that call's id. Starting a draft moves its records of
model use to the new plan; a draft counts as started once they have moved.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet
from pydantic import BaseModel, Field, ValidationError

from catalog.access.roles import NotAllowed
from catalog.dispatch.serialization import storable_text
from catalog.errors import Conflict
from catalog.models import ApiToken, Call
from catalog.secrets.placeholders import redact_text
from catalog.states import CallStatus
from plans.actions import create
from plans.actions.call import CallOrder, create_call
from plans.actions.create import PlanProblems
from plans.documents.reading import Problem
from plans.llm import provider
from plans.llm.provider import NotConfigured
from plans.models import ModelUse, Plan
from plans.planner.output import PlannerOutput
from plans.spec import PlanDocument
from plans.states import DRAFT_TOOL
from plans.store.requesters import Requester

LONGEST_REQUEST = 8000


class _DraftResult(BaseModel):
    """Result of a `draft_plan` call. A response that a person gave in place of the tool may have any other shape."""

    output: PlannerOutput
    plan: dict[str, Any] | None = None
    problems: list[Problem] = Field(default_factory=list)
    model: str = ""
    tokens: int = 0
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class FinishedDraft:
    """Result of a finished draft; `document` is None if no plan could be made. Problems have the shape of the API."""

    output: PlannerOutput
    document: Mapping[str, Any] | None
    problems: Sequence[Mapping[str, Any]] = ()
    model: str = ""
    tokens: int = 0
    request: str = ""
    strategy: str = ""
    rounds: int = 1

    @property
    def can_start(self) -> bool:
        """True if the plan has no errors and can be stored unchanged."""
        return self.document is not None and not any(each["severity"] == "error" for each in self.problems)

    def as_plan(self) -> PlanDocument:
        """Return the plan as a document to store. Raises Conflict without a plan, and PlanProblems if it is wrong."""
        if self.document is None:
            raise Conflict("The planner made no plan for this request. Write one yourself, or rephrase the request.")
        if not self.can_start:
            raise PlanProblems([Problem(**each) for each in self.problems])
        return _check_start(self.document)


def request_draft(request: str, strategy: str | None = None, *, by: Requester) -> Call:
    """Store and start a call of `draft_plan`. Raises NotConfigured, and the errors of `create_call`."""
    if not provider.is_configured():
        raise NotConfigured
    arguments = {"request": request} | ({"strategy": strategy} if strategy else {})
    return create_call(CallOrder(DRAFT_TOOL, arguments), by=by)


def finished_draft(call: Call) -> FinishedDraft | None:
    """Return the result of a draft; None while it runs or if it failed."""
    if call.tool_name != DRAFT_TOOL or call.status != CallStatus.COMPLETED or not call.response:
        return None
    results = call.response_json.get("results")
    try:
        result = _DraftResult.model_validate(results[0] if isinstance(results, list) and results else None)
    except ValidationError:  # a person responded in place of the tool
        return None
    return FinishedDraft(
        result.output,
        result.plan,
        [problem.as_json() for problem in result.problems],
        result.model,
        result.tokens,
        request_of(call),
        str(call.arguments_json.get("strategy", "")),
        result.rounds,
    )


def request_of(call: Call) -> str:
    """Return the request of a draft, without secrets."""
    return str(call.arguments_json.get("request", ""))


def started_plan(call: Call) -> Plan | None:
    return started_plans([call]).get(call.pk)


def started_plans(calls: Iterable[Call], visible_plans: QuerySet[Plan] | None = None) -> Mapping[int, Plan]:
    """Return the plans started from these drafts, among `visible_plans`, by primary key of the draft; two queries."""
    moved = ModelUse.objects.filter(call__in=list(calls)).exclude(plan__public_id=F("call__plan_ref"))
    started = dict(moved.values_list("call_id", "plan_id"))
    plans = (
        (Plan.objects.all() if visible_plans is None else visible_plans).in_bulk(started.values()) if started else {}
    )
    return {call: plans[plan] for call, plan in started.items() if plan in plans}


def draft_behind(plan: Plan) -> Call | None:
    drafts = Call.objects.filter(tool_name=DRAFT_TOOL, model_uses__plan=plan).exclude(plan_ref=plan.public_id)
    return drafts.order_by("pk").first()


def start_draft(call: Call, *, by: Requester, document: Mapping[str, Any] | None = None) -> Plan:
    """Store the plan of a draft, or an edited `document`, only once; start it unless the document says otherwise.

    Raises NotAllowed for another requester's draft, Conflict if there is no plan yet or it was already started, and
    PlanProblems.
    """
    is_own = call.requested_by_id == by.user.pk
    if by.token is not None and by.token.kind == ApiToken.Kind.AGENT:
        is_own = call.token_id == by.token.pk
    if not is_own:
        raise NotAllowed("Only the requester of a draft may start its plan.")
    found = finished_draft(call)
    if found is None:
        raise Conflict("There is no plan to start: the draft is not finished, or it failed.")
    checked = _check_start(document, by) if document is not None else found.as_plan()
    return create.create_plan(checked, by=by, origin=DraftOrigin(call))


def _check_start(document: Mapping[str, Any], by: Requester | None = None) -> PlanDocument:
    try:
        return PlanDocument.model_validate(document)
    except ValidationError:
        raise PlanProblems(create.check_document(dict(document), by=by)) from None


@dataclass(frozen=True, slots=True)
class DraftOrigin:
    call: Call

    @property
    def request(self) -> str:
        return storable_text(redact_text(request_of(self.call)))

    def become(self, plan: Plan) -> None:
        """Move the draft's records of model use to the plan. Raises Conflict if the draft was already started.

        The draft's own plan is loaded first: PostgreSQL re-checks only rows that an UPDATE changes, not joined rows.
        """
        own = Plan.objects.values_list("pk", flat=True).get(public_id=self.call.plan_ref)
        if not ModelUse.objects.filter(call=self.call, plan_id=own).update(plan=plan):
            raise Conflict("This draft was already started. Clone its plan, or ask again.")
