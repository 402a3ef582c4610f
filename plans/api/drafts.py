"""REST endpoints of drafts: the planner turns a request in words into a plan that can be started.

A view waits only briefly; the ASGI layer waits for the model and then reads the draft.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.models import Call
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.problems import ProblemDetails as Refusal
from catalog.rest.problems import refusal_responses
from catalog.rest.serializers import (
    JsonObjectField,
    StrictChoiceField,
    StrictFloatField,
    StrictSerializer,
    StrictTextField,
)
from plans.actions.create import PlanProblems
from plans.api.calls import UNFINISHED_STATUSES, CallEndpoint
from plans.api.plans import PlanEndpoint, problems_response
from plans.api.serializers import CALL_STATUSES, MAX_WAIT, PLAN_REFUSED, PlanDetailSerializer, PlanProblemSerializer
from plans.live.long_polling import DRAFT, WAIT_HEADER
from plans.live.waits import wait_briefly
from plans.llm.provider import NotConfigured
from plans.planner import drafts
from plans.planner.drafts import LONGEST_REQUEST
from plans.states import DRAFT_TOOL
from plans.store.privacy import hidden_call_parts
from plans.store.selectors import newest_call_of
from plans.strategies import STRATEGIES

STATUS_BY_FAILURE: Mapping[str, int] = {
    "no_model": 503,
    "model_rate_limited": 429,
    "model_unavailable": 502,
    "model_refused": 502,
    "model_unreadable": 502,
    "model_timeout": 504,
    "timeout": 504,
    "deadline_exceeded": 504,
    "unknown_error": 500,
}
DRAFT_RETRY_SECONDS = "30"
FAILURE_RESPONSES = refusal_responses(409, *sorted(set(STATUS_BY_FAILURE.values())))


class DraftBody(StrictSerializer):
    """A request in words, and the planning strategy."""

    request = StrictTextField(max_length=LONGEST_REQUEST)
    strategy = StrictChoiceField(choices=STRATEGIES, required=False)
    wait_seconds = StrictFloatField(required=False, min_value=0, max_value=MAX_WAIT, help_text="60 by default.")


class DraftStartBody(StrictSerializer):
    """The edited plan; without it the drafted plan starts unchanged."""

    plan = JsonObjectField(required=False)


class DraftSerializer(serializers.Serializer[Any]):
    """A draft: the planner's output, the resulting plan and its problems."""

    id = serializers.CharField(help_text="Id of the call that drafts.")
    status = serializers.ChoiceField(choices=CALL_STATUSES)
    request = serializers.CharField()
    strategy = serializers.CharField(allow_blank=True)
    output = serializers.JSONField(allow_null=True, help_text="The planner's output, parsed.")
    plan = serializers.JSONField(allow_null=True, help_text="A plan document, or null.")
    problems = PlanProblemSerializer(many=True)
    model = serializers.CharField(allow_blank=True)
    tokens = serializers.IntegerField()
    started_plan = serializers.CharField(allow_null=True, help_text="Id of the plan started from it.")


class DraftEndpoint(CallEndpoint):
    def draft(self, public_id: str) -> Call:
        call = self.call(public_id)
        if call.tool_name != DRAFT_TOOL or hidden_call_parts(self.user, call) is not None:
            raise Http404
        return call

    def answered(self, public_id: str, status: int = 200) -> Response:
        """Return the response with the draft's current state, or with the reason for its failure."""
        call = self.draft(public_id)
        found = drafts.finished_draft(call)
        if found is None and call.public_status not in UNFINISHED_STATUSES:
            failure = STATUS_BY_FAILURE.get(call.error_kind, 409)
            headers = {"Retry-After": DRAFT_RETRY_SECONDS} if failure == 429 else None
            detail = call.message or "The draft ended before the model answered. Try again."
            return Refusal(failure, detail, call.error_kind, headers=headers).response()
        plan = drafts.started_plan(call) if found else None
        document = {
            "id": call.public_id,
            "status": call.public_status,
            "request": drafts.request_of(call),
            "strategy": str(call.arguments_json.get("strategy", "")),
            "output": found.output.model_dump(mode="json") if found else None,
            "plan": found.document if found else None,
            "problems": list(found.problems) if found else [],
            "model": found.model if found else "",
            "tokens": found.tokens if found else 0,
            "started_plan": plan.public_id if plan else None,
        }
        return Response(document, status)


class DraftList(DraftEndpoint):
    """Drafts."""

    required_scopes: ClassVar = {"POST": ["plans:write", "calls:create"]}

    @extend_schema(
        "plans_draft",
        parameters=[IDEMPOTENCY_KEY],
        request=DraftBody,
        responses={201: DraftSerializer, **FAILURE_RESPONSES},
    )
    def post(self, request: Request) -> Response:
        """Draft a plan from a request in words. Nothing runs before the draft is started.

        503 names the setting to fill if no model is configured; 429, 502 and 504 report errors of the model's provider.
        """
        body = self.body(DraftBody)
        seconds = body.pop("wait_seconds", MAX_WAIT)

        def ask() -> Response:
            try:
                call = drafts.request_draft(body["request"], body.get("strategy"), by=self.requester)
            except NotConfigured as missing:
                return Refusal(503, missing.message, missing.kind).response()
            wait_briefly(call)
            return self.answered(call.public_id, 201)

        response = respond_once(request, ask, lambda ref: self.answered(newest_call_of(ref).public_id, 201))
        if seconds and response.data.get("status") in UNFINISHED_STATUSES:  # the ASGI layer waits for the draft
            response[WAIT_HEADER] = f"{response.data['id']};{seconds};{DRAFT}"
        return response


class DraftDetail(DraftEndpoint):
    """One draft."""

    required_scopes: ClassVar = {"GET": ["plans:read", "plans:write", "calls:create"]}

    @extend_schema("plans_draft_read", responses={200: DraftSerializer, **FAILURE_RESPONSES})
    def get(self, request: Request, public_id: str) -> Response:
        """Show one draft. A failed draft has the same error response as its POST."""
        return self.answered(public_id)


class DraftStart(DraftEndpoint):
    """Start of a draft."""

    def plan_response(self, plan_ref: str) -> Response:
        return PlanEndpoint.detail_response(self, plan_ref, 201)

    required_scopes: ClassVar = {"POST": ["plans:write"]}

    @extend_schema(
        "plans_draft_start",
        parameters=[IDEMPOTENCY_KEY],
        request=DraftStartBody,
        responses={201: PlanDetailSerializer, **PLAN_REFUSED},
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Start the drafted plan, or an edited one. 409 if it was already started, 422 with all problems."""

        def start() -> Response:
            document = self.body(DraftStartBody).get("plan")
            try:
                plan = drafts.start_draft(self.draft(public_id), by=self.requester, document=document)
            except PlanProblems as refusal:
                return problems_response(refusal.problems, "")
            return self.plan_response(plan.public_id)

        return respond_once(request, start, self.plan_response)
