"""REST endpoints of deferred calls: a runner lists them, claims one, and reports the end of the process it started."""

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access.tokens import ASK_SCOPE
from catalog.models import Call
from catalog.rest.problems import refusal_responses
from catalog.rest.serializers import (
    OptionalTextField,
    QuerySerializer,
    StrictBooleanField,
    StrictChoiceField,
    StrictFloatField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from catalog.states import PUBLIC_STATUS
from plans.api.plans import PlanEndpoint
from plans.coding_agents import deferred
from plans.coding_agents.deferred import DeferredCall
from plans.live.long_polling import request_deferred_wait, waited_for

MAX_WAIT = 50.0
STARTING, RUNNING, ENDED, GIVEN_BACK = "starting", "running", "ended", "given_back"
USUAL_LEASE = 60.0
OUTCOMES = get_args(deferred.Outcome)


class DeferredQuery(QuerySerializer):
    """Filters of the list, and the longest wait for something to resume."""

    client = serializers.CharField(required=False, max_length=40)
    wait_seconds = serializers.FloatField(required=False, min_value=0, max_value=MAX_WAIT)


class DeferredCallSerializer(serializers.Serializer[DeferredCall]):
    """A decided call whose session is to be resumed. Session and working directory are the client's claims."""

    call = serializers.CharField(source="run.call.public_id")
    client = serializers.CharField(source="run.client")
    session = serializers.CharField(source="run.session")
    call_id = serializers.CharField(source="run.client_call_id")
    tool = serializers.CharField(source="run.client_tool")
    cwd = serializers.CharField(source="run.cwd")
    decision = serializers.ChoiceField(choices=("allow", "deny"))
    message = serializers.CharField()
    approval = serializers.CharField(source="request.public_id", allow_null=True, default=None)
    deferred_at = serializers.DateTimeField(source="run.deferred_at", allow_null=True)
    decided_at = serializers.DateTimeField(source="request.decided_at", allow_null=True, default=None)
    expires_at = serializers.DateTimeField(
        allow_null=True, help_text="Time until which an allowed call can start; null for a refusal."
    )
    attempts = serializers.IntegerField(source="run.resume_attempts", help_text="Claims so far.")


class DeferredListSerializer(serializers.Serializer[Any]):
    """The calls whose sessions can be resumed now."""

    results: Any = DeferredCallSerializer(many=True)


class ResumedBody(StrictSerializer):
    """News of a runner about a session.

    `starting` claims it and takes `runner`; `running`, `ended` and `given_back` take the `claim`. `ended` requires the
    `exit_code`; a negative one is the number of the signal that ended the process.
    """

    state = StrictChoiceField((STARTING, RUNNING, ENDED, GIVEN_BACK))
    runner = serializers.RegexField(r"^[!-~]{1,64}$", required=False, help_text="Name of the runner.")
    claim = StrictTextField(required=False, max_length=64)
    lease_seconds = StrictFloatField(required=False, min_value=10, max_value=300, default=USUAL_LEASE)
    exit_code = StrictIntegerField(required=False, min_value=-255, max_value=255)
    message = OptionalTextField(max_length=500, help_text="Words of the runner about the end; shown to people.")
    session_gone = StrictBooleanField(required=False, default=False, help_text="The client does not know the session.")

    def validate(self, attrs: Mapping[str, Any]) -> Any:
        needed = ["runner"] if attrs["state"] == STARTING else ["claim"]
        needed += ["exit_code"] if attrs["state"] == ENDED else []
        missing = [name for name in needed if name not in attrs]
        if missing:
            message = f"This is required with the state {attrs['state']}."
            raise ValidationError({name: [message] for name in missing}, code="required")
        return attrs


class ResumedSerializer(serializers.Serializer[Any]):
    """The claim with its lease, or what became of the call when the process ended."""

    deferred = DeferredCallSerializer()
    status = serializers.CharField(source="deferred.run.call.status", help_text="Status of the call.")
    claim = serializers.CharField(required=False)
    lease_until = serializers.DateTimeField(required=False)
    outcome = serializers.ChoiceField(choices=OUTCOMES, required=False)

    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Return the document, with the call's status as in all other answers."""
        document: dict[str, Any] = super().to_representation(instance)
        return document | {"status": PUBLIC_STATUS[instance["deferred"].run.call.status]}


class DeferredList(PlanEndpoint):
    """Deferred calls that are decided."""

    required_scopes: ClassVar = {"GET": [ASK_SCOPE]}

    @extend_schema("permissions_deferred", parameters=[DeferredQuery], responses=DeferredListSerializer)
    def get(self, request: Request) -> Response:
        """List the deferred calls of this token that are decided and whose sessions nobody resumes.

        With `wait_seconds`, wait until there is one, at most that long.
        """
        query, waited = self.query(DeferredQuery), waited_for(request._request)
        found = deferred.list_deferred(self.requester, client=query.get("client"))
        response = Response(DeferredListSerializer({"results": found}).data, headers={"Cache-Control": "no-store"})
        left = waited.seconds if waited is not None else query.get("wait_seconds", 0.0)
        if not found and left:
            request_deferred_wait(response, left)
        return response


class DeferredResumed(PlanEndpoint):
    """Runners that resume a session."""

    required_scopes: ClassVar = {"POST": [ASK_SCOPE]}

    @extend_schema(
        "permissions_resumed",
        request=ResumedBody,
        responses={200: ResumedSerializer, **refusal_responses(404, 409)},
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Claim a session for one runner, extend the claim, or report that the process has ended.

        A claim that was lost is answered with 409: another runner may have the session.
        """
        body, by = self.body(ResumedBody), self.requester
        try:
            match body["state"]:
                case "starting":
                    claim = deferred.claim(public_id, body["runner"], seconds=body["lease_seconds"], by=by)
                    answer = {"deferred": claim.deferred, "claim": claim.ref, "lease_until": claim.lease_until}
                case "running":
                    claim = deferred.renew(public_id, body["claim"], seconds=body["lease_seconds"], by=by)
                    answer = {"deferred": claim.deferred, "claim": claim.ref, "lease_until": claim.lease_until}
                case "ended":
                    process = deferred.ProcessEnd(body["exit_code"], body["session_gone"], body["message"])
                    outcome, call = deferred.end(public_id, body["claim"], process, by=by)
                    answer = {"deferred": call, "outcome": outcome}
                case _:
                    answer = {"deferred": deferred.give_back(public_id, body["claim"], by=by)}
        except Call.DoesNotExist:
            raise Http404 from None
        return Response(ResumedSerializer(answer).data, headers={"Cache-Control": "no-store"})
