"""The REST paths by which a plan is taken further than it was planned: changed, skipped in part, retried, cloned."""

from typing import ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.idempotency import answer_once
from plans.api import PlanDetail, PlanEndpoint, refused, text_of
from plans.changing import PlanChange, change_plan, read_change
from plans.models import Step
from plans.retrying import retry_plan
from plans.serializers import PlanDetailSerializer, RetryBody
from plans.services import PlanProblems


class ChangeablePlan(PlanDetail):
    """One plan, read and changed."""

    required_scopes: ClassVar = {"GET": ["plans:read"], "PATCH": ["plans:write"]}

    @extend_schema("plans_change", request=PlanChange, responses=PlanDetailSerializer)
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
        """Let a plan go on from a failed step, or from all of them; 409 when nothing has failed."""
        return answer_once(request, lambda: self._retry(public_id))

    def _retry(self, public_id: str) -> Response:
        body = self.body(RetryBody)
        try:
            retry_plan(self.own_plan(public_id), body["step_id"], by=self.requester)
        except Step.DoesNotExist:
            raise Http404 from None
        return self.shown(public_id)
