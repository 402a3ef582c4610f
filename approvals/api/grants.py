"""REST endpoints of grants: list, create, read, revoke. `approvals.grants.services` checks permissions."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.errors import GrantRefused
from approvals.grants import services
from approvals.grants.conditions import conditions_for
from approvals.grants.services import GrantTerms, grant_status, grants_for
from approvals.models import ApprovalRequest, Grant
from approvals.policy_language.bounds import conditions_sentence
from approvals.requests.queries import request_for
from catalog.access.roles import ADMINISTRATOR, has_role
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.serializers import (
    MAX_ID_LENGTH,
    MomentField,
    PageQuery,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from catalog.rest.views import Endpoint

STATUSES = ("active", "used_up", "expired", "revoked", "ended")


class GrantQuery(PageQuery):
    tool = serializers.CharField(required=False, max_length=MAX_ID_LENGTH)
    active = serializers.BooleanField(
        required=False, allow_null=True, default=None, help_text="True for grants in force, false for ended ones."
    )


class GrantBody(StrictSerializer):
    """A new grant."""

    tool = StrictTextField(max_length=MAX_ID_LENGTH)
    arguments = serializers.JSONField(help_text="Rows of path, operator and value; at least one row per argument.")
    scope = StrictChoiceField(choices=Grant.Scope.values)
    scope_ref = StrictTextField(max_length=150, help_text="A plan's id, a session's name, or a username.")
    expires_at = MomentField(
        required=False, default=None, allow_null=True, help_text="Null for the latest time allowed."
    )
    max_uses = StrictIntegerField(
        required=False, default=None, allow_null=True, help_text="Null for the highest number allowed."
    )
    created_from = StrictTextField(required=False, default=None, allow_null=True, max_length=MAX_ID_LENGTH)


class GrantSerializer(serializers.Serializer[Any]):
    """A grant: a remembered approval."""

    id = serializers.CharField(source="public_id")
    tool = serializers.CharField(source="tool.name")
    arguments = serializers.SerializerMethodField(help_text="The condition rows; private values are masked.")
    sentence = serializers.SerializerMethodField(help_text="The conditions in words.")
    scope = serializers.ChoiceField(choices=Grant.Scope.values)
    scope_ref = serializers.CharField()
    expires_at = serializers.DateTimeField()
    max_uses = serializers.IntegerField()
    uses = serializers.IntegerField()
    created_from = serializers.CharField(source="created_from.public_id", default=None, allow_null=True)
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    status = serializers.SerializerMethodField()
    ended_because = serializers.SerializerMethodField()
    revoked_at = serializers.DateTimeField(allow_null=True, help_text="Set if it was revoked before it expired.")
    revoked_by = serializers.CharField(source="revoked_by.username", default=None, allow_null=True)

    @extend_schema_field(serializers.JSONField())
    def get_arguments(self, grant: Grant) -> list[dict[str, Any]]:
        """Return the condition rows, with private values masked."""
        rows: list[dict[str, Any]] = self.context["rows"][grant.pk]
        return rows

    def get_sentence(self, grant: Grant) -> str:
        """Return the conditions in words."""
        return conditions_sentence(self.get_arguments(grant))

    @extend_schema_field(serializers.ChoiceField(choices=STATUSES))
    def get_status(self, grant: Grant) -> str:
        """Return the status."""
        return grant_status(grant).word

    def get_ended_because(self, grant: Grant) -> str | None:
        """Return why the grant has ended, or None while it is in force."""
        status = grant_status(grant)
        return None if status.is_active else status.sentence


class GrantEndpoint(Endpoint):
    def grant(self, public_id: str) -> Grant:
        """Return a grant that the caller may see. Raises Http404."""
        try:
            return grants_for(self.user).get(public_id=public_id)
        except Grant.DoesNotExist:
            raise Http404 from None

    def detail_response(self, public_id: str, status: int = 200) -> Response:
        grant = self.grant(public_id)
        return Response(GrantSerializer(grant, context=self.seeing([grant])).data, status)

    def seeing(self, grants: Sequence[Grant]) -> dict[str, Any]:
        """Return the serializer context for these grants."""
        return {"rows": conditions_for(self.user, grants)}


class GrantList(GrantEndpoint):
    """The grants."""

    required_scopes: ClassVar = {"GET": ["approvals:read"], "POST": ["approvals:decide", "policies:write"]}

    @extend_schema("grants_list", parameters=[GrantQuery], responses=page_schema(GrantSerializer))
    def get(self, request: Request) -> Response:
        """List the grants, newest first."""
        query, at = self.page_query(GrantQuery)
        page = paginate(grants_for(self.user, **query), order="-id", at=at)
        context = self.seeing(page.rows)
        return paginated_response(request, page, lambda grant: GrantSerializer(grant, context=context).data)

    @extend_schema("grants_create", parameters=[IDEMPOTENCY_KEY], request=GrantBody, responses={201: GrantSerializer})
    def post(self, request: Request) -> Response:
        """Create a grant. Administrators, or reviewers from a request they approved (`created_from`)."""

        def create() -> Response:
            body = self.body(GrantBody)
            source_id = body.pop("created_from")
            try:
                source = request_for(self.user, source_id) if source_id else None
            except ApprovalRequest.DoesNotExist:
                raise GrantRefused("created_from", "No such request exists, or you may not see it.") from None
            terms = GrantTerms(rows=body.pop("arguments"), **body)
            may = self.token is None or "policies:write" in self.token.scopes
            as_administrator = may and has_role(self.user, ADMINISTRATOR)
            grant = services.create_grant(terms, by=self.user, source_request=source, as_administrator=as_administrator)
            return self.detail_response(grant.public_id, 201)

        return respond_once(request, create, lambda ref: self.detail_response(ref, 201))


class GrantDetail(GrantEndpoint):
    """One grant."""

    required_scopes: ClassVar = {"GET": ["approvals:read"], "DELETE": ["approvals:decide", "policies:write"]}

    @extend_schema("grants_read", responses=GrantSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one grant."""
        return self.detail_response(public_id)

    @extend_schema("grants_revoke", responses={200: GrantSerializer})
    def delete(self, request: Request, public_id: str) -> Response:
        """Revoke a grant; 409 if it has already ended. The grant stays listed."""
        services.revoke_grant(self.grant(public_id), by=self.user)
        return self.detail_response(public_id)
