"""REST endpoints of calls.

A view waits only briefly; for longer waits it sets `WAIT_HEADER`, and the ASGI layer waits outside the worker thread.
"""

from typing import ClassVar

from django.http import Http404
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access.roles import NotAllowed, agent_token_of
from catalog.core.content_blocks import PICTURES
from catalog.inventory.selectors import tool_or_404
from catalog.models import Call
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.problems import refusal_responses
from plans.actions.call import CallOrder, create_call, rehearse
from plans.api.plans import SESSION_NAME, PlanEndpoint
from plans.api.serializers import (
    CallBody,
    CallPreviewSerializer,
    CallQuery,
    CallSerializer,
    PreviewBody,
    RevealBody,
    RevealedSerializer,
)
from plans.live.long_polling import WAIT_HEADER
from plans.live.waits import read_soon
from plans.models import Plan
from plans.store import selectors
from plans.store.privacy import content_response_for, hidden_call_parts, mask_call, reveal_private_values

USUAL_WAIT = 10.0
UNFINISHED_STATUSES = ("running", "waiting")
CALL_SERIALIZER = CallSerializer()
"""Shared instance: a serializer copies its fields on creation, and this one keeps no state between calls."""


class CallEndpoint(PlanEndpoint):
    def detail_response(self, public_id: str, status: int = 200) -> Response:
        call = self.call(public_id)
        document, hidden = CALL_SERIALIZER.to_representation(call), hidden_call_parts(self.user, call)
        return Response(mask_call(document, hidden) if hidden else document, status)

    def call(self, public_id: str) -> Call:
        try:
            return selectors.call_for(self.user, self.token, public_id)
        except Call.DoesNotExist:
            raise Http404 from None


class CallList(CallEndpoint):
    """Direct calls."""

    required_scopes: ClassVar = {"POST": ["calls:create"]}

    @extend_schema(
        "calls_create",
        parameters=[IDEMPOTENCY_KEY, SESSION_NAME],
        request=CallBody,
        responses={201: CallSerializer, **refusal_responses(404, 429)},
    )
    def post(self, request: Request) -> Response:
        """Call a tool and wait for the result, up to `wait_seconds` (10 by default)."""
        order = self.body(CallBody)
        seconds = order.pop("wait_seconds", None)

        def call_tool() -> Response:
            try:
                call = create_call(CallOrder(plan_ref=order.pop("plan", None), **order), by=self.requester)
            except Plan.DoesNotExist:
                raise Http404 from None
            if seconds == 0:
                return self.detail_response(call.public_id, 201)
            return read_soon(
                call,
                lambda: self.detail_response(call.public_id, 201),
                lambda answer: answer.data["status"] == "running",
            )

        response = respond_once(  # a direct call is the only one of its plan
            request, call_tool, lambda ref: self.detail_response(selectors.newest_call_of(ref).public_id, 201)
        )
        if seconds is None and response.data["status"] == "running":
            seconds = USUAL_WAIT
        return request_call_wait(response, seconds)


class CallPreview(PlanEndpoint):
    """Preview of a call."""

    required_scopes: ClassVar = {"POST": ["calls:create"]}

    @extend_schema("calls_preview", request=PreviewBody, responses=CallPreviewSerializer)
    def post(self, request: Request, name: str) -> Response:
        """Show the effect of the policies on a call, and the tool's preview. Nothing runs. Not for agents' tokens."""
        body = self.body(PreviewBody)
        if agent_token_of(self.user) is not None:
            raise NotAllowed("Only a person may preview a call; agents' tokens may not.")
        found = rehearse(tool_or_404(name).name, body["arguments"], by=self.requester)
        return Response(CallPreviewSerializer(found).data, headers={"Cache-Control": "no-store"})


class CallDetail(CallEndpoint):
    """One call."""

    required_scopes: ClassVar = {"GET": ["plans:read", "calls:create"]}

    @extend_schema("calls_read", parameters=[CallQuery], responses=CallSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one call. With `wait_seconds`, wait until it has ended, at most that long."""
        return request_call_wait(self.detail_response(public_id), self.query(CallQuery).get("wait_seconds"))


CONTENT_TYPES = ("application/octet-stream", *PICTURES)


class CallContent(CallEndpoint):
    """The bytes of one content block."""

    required_scopes: ClassVar = {"GET": ["plans:read", "calls:create"]}

    @extend_schema("calls_content", responses={(200, kind): OpenApiTypes.BINARY for kind in CONTENT_TYPES})
    def get(self, request: Request, public_id: str, number: int) -> HttpResponseBase:
        """Get the bytes of one content block: PNG, JPEG, GIF and WebP as images, all else as an attachment."""
        try:
            return content_response_for(self.user, self.token, public_id, number)
        except Call.DoesNotExist:
            raise Http404 from None


class CallReveal(CallEndpoint):
    """Reveal of a private value in a call."""

    required_scopes: ClassVar = {"POST": ["plans:read", "calls:create"]}

    @extend_schema("calls_reveal", request=RevealBody, responses=RevealedSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Reveal one private value of the result. Audited."""
        path = self.body(RevealBody)["path"]
        return Response({"path": path, "value": reveal_private_values(self.call(public_id), path, by=self.user)})


def request_call_wait(response: Response, seconds: float | None) -> Response:
    """Set the header that makes the ASGI layer wait for an unfinished call."""
    if seconds and response.data.get("status") in UNFINISHED_STATUSES:
        response[WAIT_HEADER] = f"{response.data['id']};{seconds}"
    return response
