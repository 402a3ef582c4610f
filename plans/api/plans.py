"""REST endpoints of plans: submit, check, follow, control, change, retry, clone, read prompts."""

from collections.abc import Callable
from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import ValidationError
from rest_framework import serializers
from rest_framework.exceptions import ValidationError as InvalidBody
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from catalog.access.roles import NotAllowed, agent_token_of
from catalog.context import MAX_SESSION
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.problems import ProblemDetails, first_error_detail
from catalog.rest.serializers import PageQuery, StrictSerializer
from catalog.rest.views import Endpoint
from plans.actions import control, create
from plans.actions.change import PlanChange, change_plan, read_plan_change
from plans.actions.clone import clone_links, clone_plan
from plans.actions.create import PlanProblems
from plans.actions.give_input import give_input
from plans.actions.retry import retry_plan, retry_with
from plans.actions.settle import Settlement, settle_outcome
from plans.actions.skip import skip_step
from plans.api.serializers import (
    PLAN_REFUSED,
    ActionBody,
    CheckSerializer,
    CloneBody,
    EventPageSerializer,
    EventQuery,
    EventSerializer,
    InputBody,
    MemorySerializer,
    OutcomeBody,
    PlanDetailSerializer,
    PlanQueryParameters,
    PlanSerializer,
    RetryBody,
    SkipBody,
)
from plans.documents.checking import with_lines
from plans.documents.reading import Problem
from plans.llm.transcripts import Message, Transcript
from plans.models import ModelUse, Plan, Step
from plans.sessions.lists import require_no_session_list
from plans.spec import PlanDocument
from plans.store import selectors
from plans.store.privacy import hidden_parts
from plans.store.requesters import Requester
from plans.store.selectors import may_control, step_counts

SESSION_HEADER = "Toolgate-Session"
SESSION_NAME = OpenApiParameter(
    SESSION_HEADER,
    {"type": "string", "maxLength": MAX_SESSION},
    OpenApiParameter.HEADER,
    description="The name of the session that the calls belong to; without it, the default session.",
)


def body_text(request: Request) -> str:
    """Return the raw body, for the line numbers of problems. Call this before reading `request.data`."""
    body: bytes = request.body
    return body.decode("utf-8", "replace")


def problems_response(problems: list[Problem], text: str) -> Response:
    """Return a 422 response with the problems of a plan; without the text they have no line numbers."""
    placed = with_lines(problems, text) if text else problems
    found = [problem.as_json() for problem in placed if problem.severity == "error"]
    return ProblemDetails(422, first_error_detail(found), "invalid", found).response()


class PlanEndpoint(Endpoint):
    @property
    def requester(self) -> Requester:
        """The requester, with the session from the header. Raises ValidationError for a name over MAX_SESSION."""
        session = self.request.headers.get(SESSION_HEADER, "")
        if len(session) > MAX_SESSION:
            message = f"A session name may have at most {MAX_SESSION} characters."
            raise InvalidBody({SESSION_HEADER: [message]}, code="max_length")
        return Requester(self.user, self.token, via="rest", session=session)

    def plan(self, public_id: str) -> Plan:
        try:
            return selectors.plan_for(self.user, self.token, public_id)
        except Plan.DoesNotExist:
            raise Http404 from None

    def own_plan(self, public_id: str) -> Plan:
        """Return a plan that the caller may control. Raises Http404, NotAllowed, and Conflict for a session's list."""
        plan = self.plan(public_id)
        if not selectors.may_control(self.user, self.token, plan):
            raise NotAllowed("Only the plan's owner or an administrator may do this.")
        require_no_session_list(plan)
        return plan

    def detail_response(self, public_id: str, status: int = 200) -> Response:
        plan = self.plan(public_id)
        serializer = PlanDetailSerializer(
            plan,
            context={
                "counts": step_counts([plan]),
                "viewer": self.user,
                "private": hidden_parts(self.user, plan),
                "clone_links": clone_links(plan, self.user, self.token),
            },
        )
        return Response(serializer.data, status)

    def act(
        self,
        request: Request,
        public_id: str,
        serializer: type[StrictSerializer],
        action: Callable[[Plan, dict[str, Any]], object],
    ) -> Response:
        """Run an action on a plan that the caller controls, once per Idempotency-Key; return the plan.

        The action is called with the plan and the body. If it raises Step.DoesNotExist, the response is 404.
        """

        def first() -> Response:
            body = self.body(serializer)
            try:
                action(self.own_plan(public_id), body)
            except Step.DoesNotExist:
                raise Http404 from None
            return self.detail_response(public_id)

        return respond_once(request, first, self.detail_response)


class PlanListEndpoint(PlanEndpoint):
    """The plans."""

    required_scopes: ClassVar = {"GET": ["plans:read"], "POST": ["plans:write"]}

    @extend_schema("plans_list", parameters=[PlanQueryParameters], responses=page_schema(PlanSerializer))
    def get(self, request: Request) -> Response:
        """List the plans, newest first."""
        query, at = self.page_query(PlanQueryParameters)
        page = paginate(selectors.plans_for(self.user, self.token).filter(**query), order="-id", at=at)
        context = {"counts": step_counts(page.rows), "viewer": self.user}
        return paginated_response(request, page, lambda plan: PlanSerializer(plan, context=context).data)

    @extend_schema(
        "plans_create",
        parameters=[IDEMPOTENCY_KEY, SESSION_NAME],
        request=PlanDocument,
        responses={201: PlanDetailSerializer, **PLAN_REFUSED},
    )
    def post(self, request: Request) -> Response:
        """Store a plan and start it, unless `start` is false; 422 with all problems."""
        text = body_text(request)

        def create_plan() -> Response:
            try:
                plan = create.create_plan(PlanDocument.model_validate(request.data), by=self.requester)
            except ValidationError:
                return problems_response(create.check_document(request.data, by=self.requester), text)
            except PlanProblems as refusal:
                return problems_response(refusal.problems, text)
            return self.detail_response(plan.public_id, 201)

        return respond_once(request, create_plan, lambda ref: self.detail_response(ref, 201))


class PlanCheck(PlanEndpoint):
    """Check of a plan."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_check", request=PlanDocument, responses=CheckSerializer)
    def post(self, request: Request) -> Response:
        """Check a plan and return its errors and warnings. Nothing is stored."""
        text = body_text(request)
        found = with_lines(create.check_document(request.data, by=self.requester), text)
        valid = not any(problem.severity == "error" for problem in found)
        return Response(CheckSerializer({"valid": valid, "problems": found}).data)


class PlanDetail(PlanEndpoint):
    """One plan."""

    required_scopes: ClassVar = {"GET": ["plans:read"], "PATCH": ["plans:write"]}

    @extend_schema("plans_read", responses=PlanDetailSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one plan with its steps."""
        return self.detail_response(public_id)

    @extend_schema("plans_change", request=PlanChange, responses={200: PlanDetailSerializer, **PLAN_REFUSED})
    def patch(self, request: Request, public_id: str) -> Response:
        """Change the goal or steps that have not started. On 422 or 409 nothing is changed."""
        text = body_text(request)
        plan = self.own_plan(public_id)
        try:
            change_plan(plan, read_plan_change(request.data), by=self.requester)
        except PlanProblems as refusal:
            return problems_response(refusal.problems, text)
        return self.detail_response(public_id)


class PlanMemory(PlanEndpoint):
    """One plan's memory."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("plans_memory", responses=MemorySerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show the values in the plan's memory, and the notes on how they were written."""
        plan = self.plan(public_id)
        return Response(hidden_parts(self.user, plan).mask_memory(selectors.memory_of(plan)))


class PlanEvents(PlanEndpoint):
    """One plan's history."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("plans_events", parameters=[EventQuery], responses=EventPageSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """List the events after the number `after`, oldest first; `next` is the link to further events."""
        query = self.query(EventQuery)
        size = query["page_size"]
        events = selectors.events_after(self.plan(public_id), query["after"], size + 1)
        page = events[:size]
        more = len(events) > size
        link = replace_query_param(request.build_absolute_uri(), "after", page[-1].seq) if more else None
        return Response({"next": link, "previous": None, "results": EventSerializer(page, many=True).data})


class PlanAction(PlanEndpoint):
    required_scopes: ClassVar = {"POST": ["plans:write"]}


class PlanStart(PlanAction):
    """Start of a plan."""

    @extend_schema("plans_start", parameters=[IDEMPOTENCY_KEY], request=ActionBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Start a plan; 409 if it has already started."""
        return self.act(request, public_id, ActionBody, lambda plan, _: create.start_plan(plan, by=self.requester))


class PlanCancel(PlanAction):
    """Cancellation of a plan."""

    @extend_schema("plans_cancel", parameters=[IDEMPOTENCY_KEY], request=ActionBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Cancel a plan: no further step starts, and running calls are asked to stop. 409 if it has ended."""
        return self.act(request, public_id, ActionBody, lambda plan, _: control.cancel_plan(plan, by=self.requester))


class PlanPause(PlanAction):
    """Pause of a plan."""

    @extend_schema("plans_pause", parameters=[IDEMPOTENCY_KEY], request=ActionBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Pause a plan: no further step starts, running calls continue. 409 unless it is running."""
        return self.act(request, public_id, ActionBody, lambda plan, _: control.pause_plan(plan, by=self.requester))


class PlanResume(PlanAction):
    """Resumption of a plan."""

    @extend_schema("plans_resume", parameters=[IDEMPOTENCY_KEY], request=ActionBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Resume a paused plan; 409 if it is not paused."""
        return self.act(request, public_id, ActionBody, lambda plan, _: control.resume_plan(plan, by=self.requester))


class StepOutcome(PlanEndpoint):
    """Settlement of an unknown outcome."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema(
        "plans_settle_outcome", parameters=[IDEMPOTENCY_KEY], request=OutcomeBody, responses=PlanDetailSerializer
    )
    def post(self, request: Request, public_id: str, step_id: int) -> Response:
        """Settle the unknown outcome of a call that was lost while it ran. Agents' tokens may not."""

        def settle(plan: Plan, body: dict[str, Any]) -> None:
            if agent_token_of(self.user) is not None:
                raise NotAllowed("Only a person may settle an unknown outcome; agents' tokens may not.")
            settle_outcome(plan, step_id, settlement=Settlement(**body), by=self.requester)

        return self.act(request, public_id, OutcomeBody, settle)


class PlanRetry(PlanEndpoint):
    """Retry of failed steps."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_retry", parameters=[IDEMPOTENCY_KEY], request=RetryBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Retry one failed step, optionally with new arguments, or all failed steps; 409 if none has failed."""

        def retry(plan: Plan, body: dict[str, Any]) -> None:
            if "arguments" in body:
                retry_with(plan, body["step_id"], body["arguments"], by=self.requester)
            else:
                retry_plan(plan, body["step_id"], by=self.requester)

        return self.act(request, public_id, RetryBody, retry)


class StepSkip(PlanEndpoint):
    """Skip of a step."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_skip_step", parameters=[IDEMPOTENCY_KEY], request=SkipBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str, step_id: int) -> Response:
        """Skip a pending, waiting or failed step, with a reason; 409 if it runs or is completed."""

        def skip(plan: Plan, body: dict[str, Any]) -> None:
            if agent_token_of(self.user) is not None:
                raise NotAllowed("Only a person may skip a step; agents' tokens may not. Use a done_check instead.")
            skip_step(plan, step_id, body["reason"], by=self.requester)

        return self.act(request, public_id, SkipBody, skip)


class PlanInput(PlanEndpoint):
    """Input for a waiting step."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_input", parameters=[IDEMPOTENCY_KEY], request=InputBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Answer a step's question, or send new arguments for a step with requested changes; 409 if none waits."""

        def give(plan: Plan, body: dict[str, Any]) -> None:
            give_input(plan, body["step_id"], body.get("arguments"), text=body["text"], by=self.requester)

        return self.act(request, public_id, InputBody, give)


class PlanClone(PlanEndpoint):
    """Clone of a plan."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema(
        "plans_clone",
        parameters=[IDEMPOTENCY_KEY],
        request=CloneBody,
        responses={201: PlanDetailSerializer, **PLAN_REFUSED},
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Copy a plan that you may read as your own. The copy starts only if `start` is true."""

        def clone() -> Response:
            body = self.body(CloneBody)
            try:
                made = clone_plan(self.plan(public_id), by=self.requester, start=body["start"])
            except PlanProblems as refusal:
                return problems_response(refusal.problems, text="")
            return self.detail_response(made.public_id, 201)

        return respond_once(request, clone, lambda ref: self.detail_response(ref, 201))


class MessageSerializer(serializers.Serializer[Message]):
    """One message to or from a model."""

    by = serializers.CharField(help_text="Instructions, To the model, or From the model.")
    text = serializers.CharField()


class PromptSerializer(serializers.Serializer[Transcript]):
    """One request to a model, with its messages, tokens, cost and latency."""

    call = serializers.CharField(source="use.call.public_id")
    purpose = serializers.CharField(source="use.purpose")
    model = serializers.CharField(source="use.model")
    read = MessageSerializer(many=True)
    said = MessageSerializer(many=True, help_text="Empty if the model did not answer.")
    input_tokens = serializers.IntegerField(source="use.input_tokens")
    output_tokens = serializers.IntegerField(source="use.output_tokens")
    cost = serializers.FloatField(source="use.cost", allow_null=True, help_text="US dollars; null if unknown.")
    latency_ms = serializers.IntegerField(source="use.latency_ms")
    error = serializers.CharField(source="use.error", allow_blank=True, help_text="Why the model did not answer.")
    at = serializers.DateTimeField(source="use.at")


class PlanPrompts(PlanEndpoint):
    """Requests to models for one plan."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("plans_prompts", parameters=[PageQuery], responses=page_schema(PromptSerializer))
    def get(self, request: Request, public_id: str) -> Response:
        """List the requests to models for the plan, oldest first. Owner and administrators only."""
        _, at = self.page_query(PageQuery)
        plan = self.plan(public_id)
        if not may_control(self.user, self.token, plan):
            raise NotAllowed("Only the plan's owner and administrators may read its prompts.")
        page = paginate(ModelUse.objects.filter(plan=plan).select_related("call"), order="id", at=at)
        return paginated_response(request, page, lambda use: PromptSerializer(Transcript(use)).data)
