"""REST endpoints of permissions: a client asks before it runs a tool of its own, and reports its end."""

from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access.tokens import ASK_SCOPE
from catalog.errors import Conflict
from catalog.inventory.client_tools import MAX_TOOL_NAME
from catalog.models import Call
from catalog.rest.problems import refusal_responses
from catalog.rest.serializers import (
    JsonObjectField,
    OptionalTextField,
    StrictBooleanField,
    StrictFloatField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from plans.api.plans import PlanEndpoint
from plans.coding_agents.permissions import MAX_CWD, PermissionQuestion, ask, owner_of
from plans.coding_agents.reports import MAX_MESSAGE, ReportEffect, RunReport, report_call
from plans.coding_agents.sessions import note_hook_traffic
from plans.live.long_polling import request_question_wait, waited_for

MAX_PERMISSION_WAIT = 600.0
MAX_DURATION_MS = 2**53 - 1
DECISIONS = ("allow", "deny", "wait", "defer")
EFFECTS = ("ended", "late", "repeated", "kept")
NOT_ALLOWED = (
    "This call was not handed out, or with another input, so it was not to run. Administrators are notified that it "
    "ran without permission."
)


class PermissionBody(StrictSerializer):
    """A client's question whether it may run a tool of its own."""

    client = StrictTextField(max_length=40, help_text="Name of the client, such as claude-code.")
    session = StrictTextField(max_length=128, help_text="The client's id of its session.")
    tool = StrictTextField(max_length=MAX_TOOL_NAME, help_text="The client's own name of its tool.")
    input = JsonObjectField()
    call_id = OptionalTextField(
        max_length=200,
        help_text="The client's id of the call: a repeat with the same input gets the answer as of now.",
    )
    cwd = OptionalTextField(max_length=MAX_CWD, help_text="Working directory that the client claims.")
    wait_seconds = StrictFloatField(required=False, allow_null=True, min_value=0, max_value=MAX_PERMISSION_WAIT)


class PermissionSerializer(serializers.Serializer[Any]):
    """The answer as of now. On `allow`, `input` is what is to run; `message` is for the model."""

    decision = serializers.ChoiceField(choices=DECISIONS)
    call = serializers.CharField(allow_null=True)
    input = serializers.DictField(allow_null=True)
    message = serializers.CharField(allow_blank=True)
    approval = serializers.CharField(allow_null=True)
    url = serializers.CharField(allow_blank=True, help_text="Page of the request; empty if there is none.")


class RunReportBody(StrictSerializer):
    """The end of a run."""

    succeeded = StrictBooleanField()
    input = JsonObjectField(required=False, allow_null=True, help_text="The input that ran, to be compared.")
    output = serializers.JSONField(required=False, allow_null=True, default=None)
    message = OptionalTextField(max_length=MAX_MESSAGE)
    duration_ms = StrictIntegerField(required=False, allow_null=True, min_value=0, max_value=MAX_DURATION_MS)


class ReportOutcomeSerializer(serializers.Serializer[Any]):
    """The effect of a report.

    `ended`: it ended the call. `late`: it settled a call whose outcome was unknown. `repeated`: the call was reported
    before. `kept`: the call had ended otherwise, and the report is kept as evidence.
    """

    call = serializers.CharField()
    effect = serializers.ChoiceField(choices=EFFECTS)


class PermissionList(PlanEndpoint):
    """Questions of clients that run their tools themselves."""

    required_scopes: ClassVar = {"POST": [ASK_SCOPE]}

    @extend_schema("permissions_ask", request=PermissionBody, responses=PermissionSerializer)
    def post(self, request: Request) -> Response:
        """Ask whether the client may run a tool. With `wait_seconds`, wait for a person's decision, at most that long.

        A call that is allowed is handed out once and must be reported within 15 minutes. Refusals by policies, limits
        and people are answers with `deny`.
        """
        body = self.body(PermissionBody)
        seconds = body.pop("wait_seconds", None) or 0.0
        question, waited = PermissionQuestion(**body), waited_for(request._request)
        answer = ask(question, by=self.requester, waited_for=waited.call_id if waited is not None else None)
        note_hook_traffic(question.client, question.session, by=self.requester, how="permissions")
        response = Response(PermissionSerializer(answer).data, headers={"Cache-Control": "no-store"})
        left = waited.seconds if waited is not None else seconds
        if answer.decision == "wait" and answer.call is not None and left:
            request_question_wait(response, answer.call, left, owner=owner_of(self.requester))
        return response


class PermissionResult(PlanEndpoint):
    """Reports of clients about calls that they ran."""

    required_scopes: ClassVar = {"POST": [ASK_SCOPE]}

    @extend_schema(
        "permissions_report",
        request=RunReportBody,
        responses={200: ReportOutcomeSerializer, **refusal_responses(404, 409)},
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Report the end of a call that was allowed. A repeated report changes nothing.

        A report about a call that was not handed out, or not with this input, is answered with 409, and administrators
        are notified.
        """
        body = self.body(RunReportBody)
        report = RunReport(body["succeeded"], body["output"], body["message"], body.get("duration_ms"))
        try:
            outcome = report_call(public_id, report, by=self.requester, input=body.get("input"))
        except Call.DoesNotExist:
            raise Http404 from None
        effect: ReportEffect = outcome.effect
        if effect == "ungated":
            raise Conflict(NOT_ALLOWED)
        return Response(ReportOutcomeSerializer({"call": public_id, "effect": effect}).data)
