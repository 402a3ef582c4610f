"""REST endpoint of the clients' hooks: each client sends its own body, and gets an answer in its own format.

A question is always answered with a decision and status 200 where the body can be read, even if Toolgate fails: some
clients run the tool after any other answer. Without a valid token the status is 401.
"""

from collections.abc import Mapping
from typing import IO, Any, ClassVar

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access.tokens import ASK_SCOPE
from catalog.errors import TooLarge
from catalog.rest.problems import ProblemDetails, refusal_responses
from catalog.rest.serializers import QuerySerializer
from plans.api.plans import PlanEndpoint
from plans.coding_agents.hook_formats.events import Asked, HookEvent, HookFormat, UnreadableEvent
from plans.coding_agents.hooks import (
    HOOK_FORMATS,
    MAX_HOOK_BYTES,
    MOST_SECONDS,
    HookPatience,
    answer_hook,
    read_hook,
)
from plans.coding_agents.permissions import owner_of
from plans.live.long_polling import request_question_wait, waited_for

FAILED = "Toolgate could not decide about this call, so it was not allowed: {}"


class RawJSONParser(BaseParser):
    """Parser that leaves the body to the client's format, which reads reports more leniently than questions."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the body as bytes. Raises TooLarge."""
        body: bytes = stream.read(MAX_HOOK_BYTES + 1)
        if len(body) > MAX_HOOK_BYTES:
            raise TooLarge("The hook's body", size=len(body), limit=MAX_HOOK_BYTES)
        return body


class HookQuery(QuerySerializer):
    """The client's patience."""

    wait_seconds = serializers.FloatField(
        required=False, min_value=0, max_value=MOST_SECONDS, help_text="Longest wait for a decision, in seconds."
    )
    may_defer = serializers.BooleanField(
        default=False, help_text="The client's process can end now and be resumed after the decision."
    )


class HookEndpoint(PlanEndpoint):
    """Hooks of one client."""

    required_scopes: ClassVar = {"POST": [ASK_SCOPE]}
    parser_classes = (RawJSONParser,)
    event: HookEvent | None = None

    @property
    def hook_format(self) -> HookFormat:
        hook_format = HOOK_FORMATS.get(self.kwargs["client"])
        if hook_format is None:
            raise Http404
        return hook_format

    @property
    def raw_body(self) -> bytes:
        """The body as sent; REST framework does not call the parser for an empty one."""
        data: Any = self.request.data
        return data if isinstance(data, bytes) else b""

    @extend_schema(
        "hooks_create",
        parameters=[
            OpenApiParameter("client", {"type": "string", "enum": sorted(HOOK_FORMATS)}, OpenApiParameter.PATH),
            HookQuery,
        ],
        request=OpenApiTypes.OBJECT,
        responses={200: OpenApiTypes.OBJECT, **refusal_responses(404, 413)},
    )
    def post(self, request: Request, client: str) -> Response:
        """Take the body of a client's own hook, and answer in the client's format.

        A question before a tool runs is answered with a decision, after `wait_seconds` at most; a report afterwards
        with an empty object.
        """
        self.event = read_hook(self.hook_format, self.raw_body)
        query, waited = self.query(HookQuery), waited_for(request._request)
        seconds = query.get("wait_seconds") if waited is None else waited.seconds
        answer = answer_hook(
            self.hook_format,
            self.event,
            HookPatience(seconds, query["may_defer"]),
            by=self.requester,
            waited_for=waited.call_id if waited is not None else None,
        )
        response = Response(answer.document, headers={"Cache-Control": "no-store"})
        if answer.waits_for is not None:
            request_question_wait(response, answer.waits_for, answer.seconds, owner=owner_of(self.requester))
        return response

    def handle_exception(self, exc: Exception) -> Response:
        """Refuse a question in the client's format, whatever has failed; other bodies get a problem document."""
        asked = self._question(exc)
        if isinstance(exc, UnreadableEvent):
            response = ProblemDetails(422, exc.message, "invalid").response()
        else:
            response = super().handle_exception(exc)
        if asked is None or response.status_code == 401:
            return response
        message = response.data.get("detail", "")
        return Response(self.hook_format.refusal(asked, FAILED.format(message)))

    def _question(self, error: Exception) -> str | None:
        """Return the name of the event if the client waits for a decision; None if it does not, or if that is unclear.

        The request may have failed before its body was read.
        """
        if self.event is None and not isinstance(error, UnreadableEvent):
            try:
                self.event = read_hook(self.hook_format, self.raw_body)
            except UnreadableEvent as unreadable:
                error = unreadable
            except Exception:  # noqa: BLE001 - the first error is answered
                return None
        if self.event is None:
            return error.event if isinstance(error, UnreadableEvent) and error.asks else None
        return self.event.event if isinstance(self.event, Asked) else None
