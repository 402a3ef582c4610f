"""The REST paths by which a plan is taken further than it was planned: changed, skipped in part, retried, cloned."""

from typing import ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access.roles import NotAllowed, agent_token_of
from catalog.rest.idempotency import answer_once
from plans.actions.change import PlanChange, change_plan, read_change
from plans.actions.clone import clone_plan
from plans.actions.create import PlanProblems
from plans.actions.give_input import give_input
from plans.actions.retry import retry_plan, retry_with
from plans.actions.skip import skip_step
from plans.api import PlanDetail, PlanEndpoint, refused, text_of
from plans.models import Step
from plans.serializers import PLAN_REFUSED, CloneBody, InputBody, PlanDetailSerializer, RetryBody, SkipBody


class ChangeablePlan(PlanDetail):
    """One plan, read and changed."""

    required_scopes: ClassVar = {"GET": ["plans:read"], "PATCH": ["plans:write"]}

    @extend_schema("plans_change", request=PlanChange, responses={200: PlanDetailSerializer, **PLAN_REFUSED})
    def patch(self, request: Request, public_id: str) -> Response:
        """Change steps that nobody has begun: all of it or, with 422 or 409, nothing."""
        text = text_of(request)
        plan = self.own_plan(public_id)
        try:
            change_plan(plan, read_change(request.data), by=self.requester)
        except PlanProblems as refusal:
            return refused(refusal.problems, text)
        return self.shown(public_id)


class PlanRetry(PlanEndpoint):
    """Tries again what failed."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_retry", request=RetryBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Let a plan go on from a failed step, with other arguments if given, or from all; 409 when none has failed."""
        return answer_once(request, lambda: self._retry(public_id), self.shown)

    def _retry(self, public_id: str) -> Response:
        body = self.body(RetryBody)
        try:
            plan = self.own_plan(public_id)
            if "arguments" in body:
                retry_with(plan, body["step_id"], body["arguments"], by=self.requester)
            else:
                retry_plan(plan, body["step_id"], by=self.requester)
        except Step.DoesNotExist:
            raise Http404 from None
        return self.shown(public_id)


class StepSkip(PlanEndpoint):
    """Skips a step."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_skip_step", request=SkipBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str, step_id: int) -> Response:
        """Complete a pending, waiting or failed step without its tool, with a reason; 409 when it runs or is done."""
        return answer_once(request, lambda: self._skip(public_id, step_id), self.shown)

    def _skip(self, public_id: str, step_id: int) -> Response:
        body = self.body(SkipBody)
        plan = self.own_plan(public_id)
        if agent_token_of(self.user) is not None:
            raise NotAllowed("A person has to skip a step: agents' tokens never do. Give it a done_check instead.")
        try:
            skip_step(plan, step_id, body["reason"], by=self.requester)
        except Step.DoesNotExist:
            raise Http404 from None
        return self.shown(public_id)


class PlanInput(PlanEndpoint):
    """Answers a plan that waits for its person."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_input", request=InputBody, responses=PlanDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Answer a step's question with text, or give one that was sent back its arguments; 409 when none waits."""
        return answer_once(request, lambda: self._give(public_id), self.shown)

    def _give(self, public_id: str) -> Response:
        body = self.body(InputBody)
        plan = self.own_plan(public_id)
        try:
            give_input(plan, body["step_id"], body.get("arguments"), text=body["text"], by=self.requester)
        except Step.DoesNotExist:
            raise Http404 from None
        return self.shown(public_id)


class PlanClone(PlanEndpoint):
    """Clones a plan."""

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema("plans_clone", request=CloneBody, responses={201: PlanDetailSerializer, **PLAN_REFUSED})
    def post(self, request: Request, public_id: str) -> Response:
        """Store a plan that one may read anew as one's own; it waits to be started unless told otherwise."""
        return answer_once(request, lambda: self._clone(public_id), lambda ref: self.shown(ref, 201))

    def _clone(self, public_id: str) -> Response:
        body = self.body(CloneBody)
        try:
            made = clone_plan(self.plan(public_id), by=self.requester, start=body["start"])
        except PlanProblems as refusal:
            return refused(refusal.problems, text="")
        return self.shown(made.public_id, 201)
