"""The REST paths by which a plan is taken further than it was planned: changed, skipped in part, retried, cloned."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from plans.api import PlanDetail, refused, text_of
from plans.changing import PlanChange, change_plan, read_change
from plans.serializers import PlanDetailSerializer
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
