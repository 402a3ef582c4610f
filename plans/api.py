"""The plan paths of the REST API: submit, check, follow, control."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from pydantic import ValidationError
from rest_framework.exceptions import ValidationError as InvalidBody
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from catalog.access.roles import NotAllowed, agent_token_of
from catalog.rest.idempotency import answer_once
from catalog.rest.pagination import page_of, page_schema, paged
from catalog.rest.problems import Problem as Refusal
from catalog.rest.problems import sentence_of
from catalog.rest.views import Endpoint
from plans.actions import control, create
from plans.actions.clone import kin_of
from plans.actions.create import PlanProblems
from plans.actions.settle import Settlement, settle_outcome
from plans.documents.checking import with_lines
from plans.documents.reading import Problem
from plans.models import Plan, Step
from plans.serializers import (
    PLAN_REFUSED,
    ActionBody,
    CheckSerializer,
    EventPageSerializer,
    EventQuery,
    EventSerializer,
    MemorySerializer,
    OutcomeBody,
    PlanDetailSerializer,
    PlanQuery,
    PlanSerializer,
)
from plans.sessions.lists import see_that_it_is_no_list
from plans.spec import PlanDocument
from plans.store import selectors
from plans.store.privacy import hidden_from
from plans.store.requesters import Requester
from plans.store.selectors import counts_of

Service = Callable[..., None]
SESSION_HEADER = "Toolgate-Session"
MAX_SESSION = 128


class PlanEndpoint(Endpoint):
    """What the plan paths share: who asks, and the plan they may see."""

    @property
    def requester(self) -> Requester:
        """The requester, with the session that the header names. Raises ValidationError for a name over MAX_SESSION."""
        session = self.request.headers.get(SESSION_HEADER, "")
        if len(session) > MAX_SESSION:
            message = f"A session name has at most {MAX_SESSION} characters."
            raise InvalidBody({SESSION_HEADER: [message]}, code="max_length")
        return Requester(self.user, self.token, via="rest", session=session)

    def plan(self, public_id: str) -> Plan:
        """Return a plan that the caller may see; raise Http404."""
        try:
            return selectors.plan_for(self.user, self.token, public_id)
        except Plan.DoesNotExist:
            raise Http404 from None

    def own_plan(self, public_id: str) -> Plan:
        """Return a plan that the caller may control; raise Http404, NotAllowed, and Conflict for a session's list."""
        plan = self.plan(public_id)
        if not selectors.may_control(self.user, self.token, plan):
            raise NotAllowed("Only the plan's owner or an administrator may do this.")
        see_that_it_is_no_list(plan)
        return plan

    def shown(self, public_id: str, status: int = 200) -> Response:
        """Answer with the plan as it is now."""
        plan = self.plan(public_id)
        shown = PlanDetailSerializer(
            plan,
            context={
                "counts": counts_of([plan]),
                "viewer": self.user,
                "private": hidden_from(self.user, plan),
                "kin": kin_of(plan, self.user, self.token),
            },
        )
        return Response(shown.data, status)


class PlanList(PlanEndpoint):
    """The plans."""

    required_scopes: ClassVar = {"GET": ["plans:read"], "POST": ["plans:write"]}

    @extend_schema("plans_list", parameters=[PlanQuery], responses=page_schema(PlanSerializer))
    def get(self, request: Request) -> Response:
        """List the plans, newest first."""
        query, at = self.page_query(PlanQuery)
        page = page_of(selectors.plans_for(self.user, self.token).filter(**query), order="-id", at=at)
        context = {"counts": counts_of(page.rows), "viewer": self.user}
        return paged(request, page, lambda plan: PlanSerializer(plan, context=context).data)

    @extend_schema("plans_create", request=PlanDocument, responses={201: PlanDetailSerializer, **PLAN_REFUSED})
    def post(self, request: Request) -> Response:
        """Store a plan and start it, unless it says otherwise; 422 names every problem."""
        text = text_of(request)
        return answer_once(request, lambda: self._create(request.data, text), lambda ref: self.shown(ref, 201))

    def _create(self, document: Any, text: str) -> Response:
        try:
            plan = create.create_plan(PlanDocument.model_validate(document), by=self.requester)
        except ValidationError:
            return refused(create.problems_of(document, by=self.requester), text)
        except PlanProblems as refusal:
            return refused(refusal.problems, text)
        return self.shown(plan.public_id, 201)


class PlanCheck(PlanEndpoint):
    """A plan, judged and not stored."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_check", request=PlanDocument, responses=CheckSerializer)
    def post(self, request: Request) -> Response:
        """Say everything there is to know about a plan before it is stored."""
        text = text_of(request)
        found = with_lines(create.problems_of(request.data, by=self.requester), text)
        valid = not any(problem.severity == "error" for problem in found)
        return Response(CheckSerializer({"valid": valid, "problems": found}).data)


class PlanDetail(PlanEndpoint):
    """One plan."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("plans_read", responses=PlanDetailSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one plan with its steps."""
        return self.shown(public_id)


class PlanMemory(PlanEndpoint):
    """One plan's memory."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("plans_memory", responses=MemorySerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show what the plan remembers, and the notes of how it came about."""
        plan = self.plan(public_id)
        return Response(hidden_from(self.user, plan).mask_memory(selectors.memory_of(plan)))


class PlanEvents(PlanEndpoint):
    """One plan's history."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("plans_events", parameters=[EventQuery], responses=EventPageSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """List the events above `after`, oldest first; `next` goes on while there are more."""
        query = self.query(EventQuery)
        size = query["page_size"]
        events = selectors.events_after(self.plan(public_id), query["after"], size + 1)
        shown = events[:size]
        more = len(events) > size
        link = replace_query_param(request.build_absolute_uri(), "after", shown[-1].seq) if more else None
        return Response({"next": link, "previous": None, "results": EventSerializer(shown, many=True).data})


class PlanAction(PlanEndpoint):
    """What the actions on a plan share."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    def act(self, service: Service, public_id: str) -> Response:
        """Let the service act on a plan of the caller's own; answer with the plan."""
        self.body(ActionBody)
        service(self.own_plan(public_id), by=self.requester)
        return self.shown(public_id)


class PlanStart(PlanAction):
    """Starts a plan."""

    @extend_schema("plans_start", request=ActionBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Start a plan that has not started; 409 when it has."""
        return answer_once(request, lambda: self.act(create.start_plan, public_id), self.shown)


class PlanCancel(PlanAction):
    """Cancels a plan."""

    @extend_schema("plans_cancel", request=ActionBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Cancel a plan: nothing more of it starts, and what runs is told to stop; 409 when it is over."""
        return answer_once(request, lambda: self.act(control.cancel_plan, public_id), self.shown)


class PlanPause(PlanAction):
    """Pauses a plan."""

    @extend_schema("plans_pause", request=ActionBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Pause a plan: no further step starts, what runs goes on; 409 when it is paused, not started or over."""
        return answer_once(request, lambda: self.act(control.pause_plan, public_id), self.shown)


class PlanResume(PlanAction):
    """Resumes a plan."""

    @extend_schema("plans_resume", request=ActionBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Let a paused plan go on; 409 when it is not paused."""
        return answer_once(request, lambda: self.act(control.resume_plan, public_id), self.shown)


class StepOutcome(PlanEndpoint):
    """Settles a step whose outcome nobody knows."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_settle_outcome", request=OutcomeBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str, step_id: int) -> Response:
        """Say what became of a call that was lost while it ran."""
        return answer_once(request, lambda: self._settle(public_id, step_id), self.shown)

    def _settle(self, public_id: str, step_id: int) -> Response:
        settlement = Settlement(**self.body(OutcomeBody))
        plan = self.own_plan(public_id)
        if agent_token_of(self.user) is not None:
            raise NotAllowed("A person has to say what happened: agents' tokens never settle an outcome.")
        try:
            settle_outcome(plan, step_id, settlement=settlement, by=self.requester)
        except Step.DoesNotExist:
            raise Http404 from None
        return self.shown(public_id)


def text_of(request: Request) -> str:
    """Return the body as it was sent, for the lines that problems name; to be asked for before the data."""
    body: bytes = request.body
    return body.decode("utf-8", "replace")


def refused(problems: list[Problem], text: str) -> Response:
    """Answer 422 with the problems of a plan that cannot be stored; without a text they have no lines."""
    placed = with_lines(problems, text) if text else problems
    found = [asdict(problem) for problem in placed if problem.severity == "error"]
    return Refusal(422, sentence_of(found), "invalid", found).response()
