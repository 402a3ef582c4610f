"""REST endpoints of plan slices: request approval of the next gated steps early, and approve them together."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.request_serializers import ApprovalSerializer, BatchResultSerializer, ItemBody
from approvals.models import ApprovalRequest
from approvals.requests.privacy import hidden_from
from approvals.requests.queries import requests_for, with_related, with_snooze
from catalog.calls.privacy import PRIVATE_NOTICE
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.problems import refusal_responses
from catalog.rest.serializers import MAX_ID_LENGTH, StrictIntegerField, StrictSerializer, StrictTextField
from plans.actions import slices
from plans.actions.slices import MAX_SLICE_STEPS, ApprovalTerms, SliceItem
from plans.actions.upcoming import UpcomingStep
from plans.api.plans import PlanEndpoint
from plans.spec import MAX_STEP_ID
from plans.store.privacy import PrivatePlanParts
from plans.store.privacy import hidden_parts as hidden_in_plan


class SlicePreviewBody(StrictSerializer):
    """The plan, and the number of its next gated steps."""

    plan = StrictTextField(max_length=MAX_ID_LENGTH)
    count = StrictIntegerField(min_value=1, max_value=MAX_SLICE_STEPS)


class SliceItemBody(ItemBody):
    """One request of a slice, with the digest that was seen. `step_id` and `tool`, if given, must match the request."""

    seen_digest = StrictTextField(max_length=64)
    step_id = StrictIntegerField(required=False, min_value=1, max_value=MAX_STEP_ID)
    tool = StrictTextField(required=False, max_length=MAX_ID_LENGTH)


class SliceBody(StrictSerializer):
    """The requests to approve, each with the digest that was seen."""

    plan = StrictTextField(max_length=MAX_ID_LENGTH)
    items = serializers.ListField(child=SliceItemBody(), min_length=1, max_length=MAX_SLICE_STEPS)
    comment = StrictTextField(required=False, allow_blank=True, default="")

    def validate_items(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ids = [item["id"] for item in items]
        if len(set(ids)) < len(ids):
            raise serializers.ValidationError("A request is listed twice.", code="duplicate")
        return items


class SliceItemSerializer(ApprovalSerializer):
    """A request as in lists, with the digest to send back as `seen_digest`."""

    seen_digest = serializers.CharField(source="digest")


class UpcomingStepSerializer(serializers.Serializer[UpcomingStep]):
    """An unfinished step; `stands` is `alone`, `gated`, `later`, `asked`, `waits`, `approved` or `stops`."""

    step_id = serializers.IntegerField(source="step.step_id")
    tool = serializers.CharField(source="step.tool")
    stands = serializers.CharField(source="kind")
    why = serializers.SerializerMethodField()

    def get_why(self, upcoming: UpcomingStep) -> str:
        """Return the reason, masked if it may repeat private data."""
        private: PrivatePlanParts = self.context["private"]
        return PRIVATE_NOTICE if upcoming.why and upcoming.step.step_id in private.steps else upcoming.why


class LeftOutSerializer(serializers.Serializer[Any]):
    """A gated step for which no request could be opened now."""

    step_id = serializers.IntegerField()
    why = serializers.CharField()


class SliceSerializer(serializers.Serializer[slices.PlanSlice]):
    """Requests to decide now, gated steps without a request, and all upcoming steps."""

    results = serializers.SerializerMethodField()
    left = serializers.SerializerMethodField()
    ahead = UpcomingStepSerializer(many=True)

    @extend_schema_field(SliceItemSerializer(many=True))
    def get_results(self, plan_slice: slices.PlanSlice) -> Any:
        viewer, order = self.context["viewer"], [request.pk for request in plan_slice.requests]
        rows = with_snooze(with_related(requests_for(viewer)), viewer).filter(pk__in=order)
        requests: list[ApprovalRequest] = sorted(rows, key=lambda row: order.index(row.pk))
        context = {"viewer": viewer, "private": hidden_from(viewer, requests)}
        return SliceItemSerializer(requests, many=True, context=context).data

    @extend_schema_field(LeftOutSerializer(many=True))
    def get_left(self, plan_slice: slices.PlanSlice) -> list[dict[str, Any]]:
        private: PrivatePlanParts = self.context["private"]
        reasons = [(number, PRIVATE_NOTICE if number in private.steps else why) for number, why in plan_slice.left]
        return [{"step_id": number, "why": why} for number, why in reasons]


class SlicePreview(PlanEndpoint):
    """Endpoint that opens early requests for the next gated steps and returns them."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema(
        "approvals_slice_preview",
        parameters=[IDEMPOTENCY_KEY],
        request=SlicePreviewBody,
        responses={200: SliceSerializer, **refusal_responses(404)},
    )
    def post(self, request: Request) -> Response:
        """Open requests for the next gated steps with known arguments. A repeat returns the same requests."""
        return respond_once(request, self._prepare, lambda _: self._prepare())

    def _prepare(self) -> Response:
        body = self.body(SlicePreviewBody)
        plan = self.plan(body["plan"])
        context = {"viewer": self.user, "private": hidden_in_plan(self.user, plan)}
        return Response(SliceSerializer(slices.prepare_slice(plan, body["count"], by=self.user), context=context).data)


class SliceApproval(PlanEndpoint):
    """Approval of several steps of a plan."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema(
        "approvals_slice",
        parameters=[IDEMPOTENCY_KEY],
        request=SliceBody,
        responses={200: BatchResultSerializer, **refusal_responses(404)},
    )
    def post(self, request: Request) -> Response:
        """Approve requests of a slice, each by its own digest. The response has a result for each."""
        return respond_once(request, self._approve, lambda _: self._approve(repeated=True))

    def _approve(self, *, repeated: bool = False) -> Response:
        body = self.body(SliceBody)
        items = [SliceItem(**item) for item in body["items"]]
        given = ApprovalTerms(by=self.user, comment=body["comment"], repeated=repeated)
        results = slices.approve_slice(self.plan(body["plan"]), items, given)
        return Response(BatchResultSerializer({"results": results}).data)
