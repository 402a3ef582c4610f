"""The token paths of the REST API: list, create, read, change, revoke, and the token of the request itself."""

from typing import Any

from django.db import transaction
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access import tokens
from catalog.access.limits import LENGTHS, LEVELS, MAX_NAMES
from catalog.access.tokens import DEFAULT_TOKEN_DAYS, MAX_HOLD_SECONDS, MAX_TOKEN_DAYS, MAX_TOKEN_NAME, SCOPES
from catalog.models import ApiToken
from catalog.rest.idempotency import IDEMPOTENCY_KEY, record_done, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.problems import refusal_responses
from catalog.rest.serializers import (
    PageQuery,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from catalog.rest.views import Endpoint

MOST_USERNAME = 150


class TokenQuery(PageQuery):
    owner = serializers.CharField(required=False, max_length=MOST_USERNAME, help_text="A username.")


class HoldSecondsField(StrictIntegerField):
    """The longest wait of an MCP call for a decision, in seconds."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            required=False,
            allow_null=True,
            min_value=0,
            max_value=MAX_HOLD_SECONDS,
            help_text="The longest time that an MCP call waits for a decision; null for the default.",
            **options,
        )


class LimitsBody(StrictSerializer):
    """The tools that a token may see and call. A missing field limits nothing; an empty list leaves no tool."""

    max_level = StrictChoiceField(choices=LEVELS, required=False, help_text="The highest safety level.")
    categories = serializers.ListField(
        child=StrictTextField(max_length=LENGTHS["categories"]),
        required=False,
        max_length=MAX_NAMES,
        help_text="Every category of a tool must be listed; a tool without category is left out.",
    )
    sources = serializers.ListField(
        child=StrictTextField(max_length=LENGTHS["sources"]),
        required=False,
        max_length=MAX_NAMES,
        help_text="Names of sources, as in the field `source` of a tool.",
    )


class TokenBody(StrictSerializer):
    """A token to be created."""

    name = StrictTextField(max_length=MAX_TOKEN_NAME)
    kind = StrictChoiceField(choices=tokens.KINDS)
    scopes = serializers.ListField(child=StrictChoiceField(choices=SCOPES), allow_empty=False, max_length=len(SCOPES))
    days = StrictIntegerField(default=DEFAULT_TOKEN_DAYS, min_value=1, max_value=MAX_TOKEN_DAYS)
    hold_seconds = HoldSecondsField(default=None)
    limits = LimitsBody(required=False, allow_null=True, default=None, help_text="Null for all tools.")


class TokenChangeBody(StrictSerializer):
    """Changes to a token; fields that are left out keep their values."""

    name = StrictTextField(required=False, max_length=MAX_TOKEN_NAME)
    hold_seconds = HoldSecondsField()
    limits = LimitsBody(required=False, allow_null=True, help_text="Replaces all limits; null for all tools.")
    learnt_waits = serializers.ListField(
        child=serializers.JSONField(), required=False, max_length=0, help_text="Send an empty list to reset them."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError("Name at least one field to change.")
        return attrs


class LearntWaitSerializer(serializers.Serializer[Any]):
    """The wait of one MCP client of a token, learnt from the connections that it closed."""

    client = serializers.CharField()
    seconds = serializers.FloatField()


class ConnectedClientSerializer(serializers.Serializer[Any]):
    """The client that connected by OAuth, by the name that it gave itself and the host of its redirect address."""

    name = serializers.CharField(source="client_name")
    host = serializers.CharField(source="client_host")


class TokenSerializer(serializers.Serializer[Any]):
    """A token. Its text is shown only in the response that creates it."""

    id = serializers.IntegerField(source="pk")
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=tokens.KINDS)
    scopes = serializers.ListField(child=serializers.CharField())
    owner = serializers.CharField(source="user.username")
    prefix = serializers.CharField(help_text="The first characters of the token.")
    learnt_waits = LearntWaitSerializer(source="learnt_waits.all", many=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    hold_seconds = serializers.IntegerField(allow_null=True)
    limits = LimitsBody(allow_null=True, help_text="The tools that the token may use; null for all tools.")
    via = serializers.SerializerMethodField(help_text="`oauth` for a connection of a client; null for a bearer token.")
    client = ConnectedClientSerializer(source="connection", allow_null=True)

    @extend_schema_field({"type": ["string", "null"], "enum": ["oauth", None]})
    def get_via(self, token: ApiToken) -> str | None:
        return "oauth" if hasattr(token, "connection") else None


class CreatedTokenSerializer(TokenSerializer):
    """A new token. The response to a repeat with the same Idempotency-Key lacks `token`."""

    token = serializers.CharField(required=False, help_text="The text to send as a bearer token. Shown only here.")


class TokenEndpoint(Endpoint):
    def token_or_404(self, pk: int) -> ApiToken:
        try:
            return tokens.token_for(self.user, pk)
        except ApiToken.DoesNotExist:
            raise Http404 from None

    def detail_response(self, pk: int, status: int = 200) -> Response:
        return Response(TokenSerializer(self.token_or_404(pk)).data, status)

    def revoke(self, token: ApiToken) -> Response:
        tokens.revoke_token(token, by=self.user)
        return self.detail_response(token.pk)


class TokenList(TokenEndpoint):
    @extend_schema("tokens_list", parameters=[TokenQuery], responses=page_schema(TokenSerializer))
    def get(self, request: Request) -> Response:
        """List your tokens, newest first. Administrators see all tokens, an agent's token only itself.

        A token stays listed for 90 days after it is revoked or expires.
        """
        query, at = self.page_query(TokenQuery)
        found = tokens.listed_tokens(self.user)
        if "owner" in query:
            found = found.filter(user__username=query["owner"])
        page = paginate(found, order="-id", at=at)
        return paginated_response(request, page, lambda token: TokenSerializer(token).data)

    @extend_schema(
        "tokens_create", parameters=[IDEMPOTENCY_KEY], request=TokenBody, responses={201: CreatedTokenSerializer}
    )
    def post(self, request: Request) -> Response:
        """Create a token for yourself. Requires a session: tokens cannot create tokens."""
        if self.token is not None:
            raise PermissionDenied("A token cannot create tokens. Sign in instead.")

        def create() -> Response:
            body = self.body(TokenBody)
            with transaction.atomic():
                token, text = tokens.issue_token(user=self.user, **body)
                record_done(str(token.pk))
            response = self.detail_response(token.pk, 201)
            response.data["token"] = text
            return response

        return respond_once(request, create, lambda ref: self.detail_response(int(ref), 201), unstored=["token"])


class TokenDetail(TokenEndpoint):
    @extend_schema("tokens_read", responses=TokenSerializer)
    def get(self, request: Request, number: int) -> Response:
        """Show one token."""
        return self.detail_response(number)

    @extend_schema("tokens_change", request=TokenChangeBody, responses=TokenSerializer)
    def patch(self, request: Request, number: int) -> Response:
        """Change the name, `hold_seconds` or `limits` of a token, or reset its learnt waits. Not for agents' tokens.

        A token that has limits cannot change limits.
        """
        changes = self.body(TokenChangeBody)
        tokens.change_token(self.token_or_404(number), changes, by=self.user)
        return self.detail_response(number)

    @extend_schema("tokens_revoke", responses={200: TokenSerializer})
    def delete(self, request: Request, number: int) -> Response:
        """Revoke a token immediately; 409 if it is already revoked."""
        return self.revoke(self.token_or_404(number))


class CurrentToken(TokenEndpoint):
    @property
    def current(self) -> ApiToken:
        """Return the token that authenticated this request. Raises Http404 if a session did."""
        if self.token is None:
            raise Http404
        return self.token

    @extend_schema("tokens_current", responses={200: TokenSerializer} | refusal_responses(404))
    def get(self, request: Request) -> Response:
        """Show the token of this request; 404 for a session."""
        return self.detail_response(self.current.pk)

    @extend_schema("tokens_current_revoke", responses={200: TokenSerializer} | refusal_responses(404))
    def delete(self, request: Request) -> Response:
        """Revoke the token of this request."""
        return self.revoke(self.current)
