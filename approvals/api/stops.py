"""REST endpoints of stops: list, set, read, lift. `approvals.stops.services` checks permissions."""

from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.models import Stop
from approvals.stops.services import (
    CANCELLED,
    MAX_KEY,
    MAX_REASON,
    AlreadyStopped,
    lift_stop,
    parse_scope,
    require_may_lift,
    require_may_set,
    scope_document,
    set_or_cancel,
    stops_for,
)
from catalog.core.transactions import is_unavailable
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.problems import DATABASE_UNAVAILABLE, MEDIA_TYPE, ProblemDetails, ProblemSerializer
from catalog.rest.serializers import (
    PageQuery,
    StrictBooleanField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from catalog.rest.views import Endpoint

NOT_SET = ProblemDetails(
    503,
    "The database is not available, so this did not take effect: nothing was stopped. Try again in a few seconds. If "
    "only the answer was lost, a repeat answers 409 and names the stop that stands.",
    DATABASE_UNAVAILABLE.code,
    headers=DATABASE_UNAVAILABLE.headers,
)


class StopQuery(PageQuery):
    standing = serializers.BooleanField(
        required=False, allow_null=True, default=None, help_text="True for stops that stand, false for lifted ones."
    )


class StopScopeBody(StrictSerializer):
    """The scope of a stop: exactly one of these."""

    everything = StrictBooleanField(required=False, default=None, allow_null=True)
    tool = StrictTextField(required=False, default=None, allow_null=True, max_length=MAX_KEY)
    category = StrictTextField(required=False, default=None, allow_null=True, max_length=MAX_KEY)
    source = StrictTextField(required=False, default=None, allow_null=True, max_length=MAX_KEY)  # type: ignore[assignment] # a field of the body named like an attribute of fields
    agent = StrictTextField(required=False, default=None, allow_null=True, max_length=MAX_KEY)
    token = StrictIntegerField(required=False, default=None, allow_null=True, help_text="The token's number.")
    requester = StrictTextField(
        required=False, default=None, allow_null=True, max_length=MAX_KEY, help_text="A username."
    )


class StopBody(StrictSerializer):
    """A new stop."""

    scope = StopScopeBody()
    reason = StrictTextField(max_length=MAX_REASON, help_text="Shown to people and agents.")
    cancel_running = StrictBooleanField(
        required=False, default=False, help_text="Also ask the running handlers in its scope to cancel."
    )


class LiftBody(StrictSerializer):
    """The reason for lifting a stop."""

    reason = StrictTextField(max_length=MAX_REASON)


class StopSerializer(serializers.Serializer[Any]):
    """A stop: while it stands, nothing in its scope starts."""

    id = serializers.CharField(source="public_id")
    scope = serializers.SerializerMethodField(help_text="One of the scopes of a new stop.")
    reason = serializers.CharField()
    cancel_running = serializers.BooleanField()
    by = serializers.SerializerMethodField(help_text="A username, or the command or policy that set it.")
    since = serializers.DateTimeField()
    lifted_at = serializers.DateTimeField(allow_null=True)
    lifted_by = serializers.SerializerMethodField()
    lift_reason = serializers.CharField(allow_blank=True)

    @extend_schema_field(serializers.JSONField())
    def get_scope(self, stop: Stop) -> dict[str, Any]:
        """Return the scope."""
        return scope_document(stop.kind, stop.key, stop.name)

    def get_by(self, stop: Stop) -> str:
        """Return who set it."""
        return stop.set_by.get_username() if stop.set_by else stop.set_through

    def get_lifted_by(self, stop: Stop) -> str | None:
        """Return who lifted it; null while it stands."""
        if stop.lifted_at is None:
            return None
        return stop.lifted_by.get_username() if stop.lifted_by else stop.lifted_through


class AlreadyStoppedSerializer(ProblemSerializer):
    """The problem of a scope that is stopped already, with the stop that stands."""

    stop = StopSerializer(required=False)


class StopEndpoint(Endpoint):
    def stop(self, public_id: str) -> Stop:
        """Return a stop that the caller may see. Raises Http404."""
        found = stops_for(self.user).filter(public_id=public_id).first()
        if found is None:
            raise Http404
        return found

    def detail_response(self, public_id: str, status: int = 200) -> Response:
        return Response(StopSerializer(self.stop(public_id)).data, status)


class StopList(StopEndpoint):
    """The stops."""

    required_scopes: ClassVar = {"GET": ["approvals:read"], "POST": ["approvals:decide"]}

    def handle_exception(self, exc: Exception) -> Response:
        """Say that a stop was not set if the database is not available, whatever needed it."""
        if self.request.method == "POST" and is_unavailable(exc):
            return NOT_SET.response()
        return super().handle_exception(exc)

    @extend_schema("stops_list", parameters=[StopQuery], responses=page_schema(StopSerializer))
    def get(self, request: Request) -> Response:
        """List the stops, the latest first."""
        query, at = self.page_query(StopQuery)
        found = stops_for(self.user)
        if query["standing"] is not None:
            found = found.filter(lifted_at__isnull=query["standing"])
        page = paginate(found, order="-id", at=at)
        return paginated_response(request, page, lambda stop: StopSerializer(stop).data)

    @extend_schema(
        "stops_set",
        parameters=[IDEMPOTENCY_KEY],
        request=StopBody,
        responses={
            200: StopSerializer,
            201: StopSerializer,
            (409, MEDIA_TYPE): OpenApiResponse(AlreadyStoppedSerializer, description="Conflict"),
        },
    )
    def post(self, request: Request) -> Response:
        """Stop everything in a scope. Reviewers and administrators, by no agent's token.

        A stop of the same scope that stands answers 409, but with `cancel_running` what runs is asked to cancel, and
        the answer is 200 with that stop.
        """
        require_may_set(self.user)

        def act() -> Response:
            body = self.body(StopBody)
            scope, cancel = parse_scope(body["scope"]), body["cancel_running"]
            try:
                stop, is_new = set_or_cancel(scope, body["reason"], by=self.user, cancel_running=cancel)
            except AlreadyStopped as standing:
                problem = ProblemDetails(409, standing.message, "conflict").as_json()
                shown = problem | {"stop": StopSerializer(standing.stop).data}
                return Response(shown, 409, content_type=MEDIA_TYPE)
            return self.detail_response(stop.public_id, 201 if is_new else 200)

        def repeat(ref: str) -> Response:
            return self.detail_response(ref.removesuffix(CANCELLED), 200 if ref.endswith(CANCELLED) else 201)

        return respond_once(request, act, repeat)


class StopDetail(StopEndpoint):
    """One stop."""

    required_scopes: ClassVar = {"GET": ["approvals:read"], "DELETE": ["policies:write"]}

    @extend_schema("stops_read", responses=StopSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one stop."""
        return self.detail_response(public_id)

    @extend_schema("stops_lift", request=LiftBody, responses={200: StopSerializer})
    def delete(self, request: Request, public_id: str) -> Response:
        """Lift a stop, with a reason; 409 if it was lifted already. Administrators, by no agent's token."""
        require_may_lift(self.user)
        lift_stop(self.stop(public_id), self.body(LiftBody)["reason"], by=self.user)
        return self.detail_response(public_id)
