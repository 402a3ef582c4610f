"""REST endpoints of tools: list, read, export, validate, change, compare implementations."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from django.db.models import Q
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access.limits import tools_within
from catalog.api.serializers import (
    CatalogQuery,
    ListedToolSerializer,
    OutcomeSerializer,
    ProviderQuery,
    ToolDetailSerializer,
    ToolQuery,
    ValidateBody,
    ValidSerializer,
    VersionQuery,
    VersionSerializer,
)
from catalog.calls.statistics import implementation_stats
from catalog.core.egress import MAX_URL_LENGTH
from catalog.definitions.grant_limits import DEFAULT_GRANT_HOURS, DEFAULT_GRANT_USES, MAX_GRANT_HOURS, MAX_GRANT_USES
from catalog.definitions.rules import MAX_CATEGORY
from catalog.dispatch.arguments import prepare_arguments
from catalog.exports import providers
from catalog.inventory import selectors, snapshot
from catalog.inventory.held_changes import accept_version
from catalog.inventory.http_tools import create_http_tool, update_http_tool
from catalog.inventory.overrides import (
    MAX_CATEGORIES,
    MAX_DESCRIPTION_OVERRIDE,
    MAX_REASON,
    MAX_WEIGHT,
    apply_overrides,
)
from catalog.inventory.selectors import LEVELS, tool_or_404
from catalog.inventory.versions import catalog_write_lock
from catalog.models import Tool, ToolVersion
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.serializers import (
    OptionalTextField,
    StrictBooleanField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from catalog.rest.views import Endpoint
from catalog.sources.http_requests import METHODS
from catalog.sources.settings import MAX_VALUE
from catalog.ui.version_changes import held_change

EXPORT_RESPONSES = {(200, "application/json"): OpenApiTypes.OBJECT, (200, "text/plain"): OpenApiTypes.STR}
EXPORT_LIST_RESPONSES = {**EXPORT_RESPONSES, (200, "application/json"): {"type": "array", "items": {"type": "object"}}}
NOTES_HEADER_PARAMETER = OpenApiParameter(
    providers.NOTES_HEADER,
    location=OpenApiParameter.HEADER,
    response=True,
    description="A JSON list of tool, code and message: schema features that the format omits, truncates or flattens.",
)


def export_response(query: dict[str, Any], versions: Iterable[ToolVersion], *, alone: bool = False) -> HttpResponseBase:
    """Return a response with tools in a provider's format. Notes about the export are in a header."""
    provider = query["provider"]
    documents, notes = providers.export_tool(provider, versions, strictly=query["strict"])
    if alone and not documents:
        raise ValidationError({"provider": [note.message for note in notes]})
    response: HttpResponseBase = Response(documents[0] if alone else documents)
    if provider == "gram":
        response = HttpResponse("\n\n".join(map(str, documents)), content_type="text/plain; charset=utf-8")
    if notes:
        response[providers.NOTES_HEADER] = providers.warnings_header(notes)
    return response


class HttpChangeBody(StrictSerializer):
    """The fields of a request to change; omitted fields keep their values, and so do masked values of headers."""

    method = StrictChoiceField(choices=METHODS, required=False)
    url = StrictTextField(
        max_length=MAX_URL_LENGTH, required=False, help_text="Placeholders such as {id} stand in path and query."
    )
    headers = serializers.DictField(
        child=StrictTextField(max_length=MAX_VALUE), required=False, help_text="Stored encrypted and never shown."
    )
    timeout = StrictIntegerField(required=False, min_value=1, max_value=300, help_text="Seconds; default 30.")


class HttpBody(HttpChangeBody):
    """The request that a call of an HTTP tool becomes."""

    method = StrictChoiceField(choices=METHODS)
    url = StrictTextField(max_length=MAX_URL_LENGTH, help_text="Placeholders such as {id} stand in path and query.")


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "object", "additionalProperties": {}}]})
class SpecificationField(serializers.JSONField):
    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str | dict):
            raise ValidationError("Send gram as text, or an object with name, description and schema.")
        return data


class ToolBody(StrictSerializer):
    """A tool whose calls are HTTP requests."""

    specification = SpecificationField(
        help_text="gram, or an object with `name` (snake_case), `description` and `schema` or `typeSignature`."
    )
    safety_level = StrictChoiceField(choices=LEVELS)
    categories = serializers.ListField(
        child=StrictTextField(max_length=MAX_CATEGORY), required=False, max_length=MAX_CATEGORIES
    )
    http = HttpBody()


class ToolEndpoint(Endpoint):
    """Base class of the tool endpoints: for a token, the tools outside its limits do not exist."""

    @property
    def allowed(self) -> Q:
        return tools_within(self.token.limits) if self.token is not None else Q()

    def tool_or_404(self, name: str) -> Tool:
        return tool_or_404(name, self.allowed)


class ToolList(ToolEndpoint):
    required_scopes: ClassVar = {"GET": ["tools:read"], "POST": ["catalog:write"]}

    @extend_schema(
        "tools_create", parameters=[IDEMPOTENCY_KEY], request=ToolBody, responses={201: ToolDetailSerializer}
    )
    def post(self, request: Request) -> Response:
        """Add a tool whose calls are HTTP requests. Administrators only."""

        def create() -> Response:
            values = self.body(ToolBody)
            tool = create_http_tool(
                values["specification"],
                values["http"],
                safety_level=values["safety_level"],
                categories=values.get("categories", ()),
                by=self.user,
            )
            return Response(ToolDetailSerializer(tool_or_404(tool.name), context={"viewer": self.user}).data, 201)

        return respond_once(request, create)

    @extend_schema("tools_list", parameters=[ToolQuery], responses=page_schema(ListedToolSerializer))
    def get(self, request: Request) -> Response:
        """List the tools that a source offers."""
        query, at = self.page_query(ToolQuery)
        sort = query.pop("sort")
        found = selectors.filtered_tools(selectors.tool_condition(**query) & self.allowed, sort)
        page = paginate(found, order=selectors.sort_column(sort), at=at)
        detailed = replace(page, rows=selectors.with_list_details(page.rows, counted=True))
        return paginated_response(request, detailed, lambda tool: ListedToolSerializer(tool).data)


class ToolDetail(ToolEndpoint):
    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_read", responses=ToolDetailSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Show one tool with its schemas, implementations and usage."""
        return Response(ToolDetailSerializer(self.tool_or_404(name), context={"viewer": self.user}).data)


class ToolVersions(ToolEndpoint):
    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_versions", parameters=[VersionQuery], responses=page_schema(VersionSerializer))
    def get(self, request: Request, name: str) -> Response:
        """List the versions of a tool, newest first, with one that is held until an administrator accepts it."""
        _, at = self.page_query(VersionQuery)
        tool = self.tool_or_404(name)
        page = paginate(selectors.tool_versions(tool, with_held=True), order="-number", at=at)
        context = {"held": held_change(tool)}
        return paginated_response(request, page, lambda version: VersionSerializer(version, context=context).data)


class ToolSchema(ToolEndpoint):
    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_schema", parameters=[ProviderQuery, NOTES_HEADER_PARAMETER], responses=EXPORT_RESPONSES)
    def get(self, request: Request, name: str) -> HttpResponseBase:
        """Show the tool in a provider's format."""
        version = selectors.get_current_version(self.tool_or_404(name))
        return export_response(self.query(ProviderQuery), [version], alone=True)


class ToolSchemas(ToolEndpoint):
    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_schemas", parameters=[CatalogQuery, NOTES_HEADER_PARAMETER], responses=EXPORT_LIST_RESPONSES)
    def get(self, request: Request) -> HttpResponseBase:
        """List the callable tools in a provider's format. Takes the filters of the tool list."""
        query = self.query(CatalogQuery)
        filters = {name: query[name] for name in query.keys() - {"provider", "strict"}}
        condition = selectors.tool_condition(**filters) & self.allowed
        return export_response(query, selectors.callable_versions(condition))


class ToolValidate(ToolEndpoint):
    required_scopes: ClassVar = {"POST": ["tools:read"]}

    @extend_schema("tools_validate", request=ValidateBody, responses=ValidSerializer)
    def post(self, request: Request, name: str) -> Response:
        """Validate arguments for a tool; 422 lists what is invalid."""
        arguments = self.body(ValidateBody)["arguments"]
        loaded = snapshot.callable_tool(name)
        if loaded is None or (self.allowed and self.tool_or_404(name).pk != loaded.tool_pk):
            raise Http404
        prepare_arguments(loaded.tool, arguments)
        return Response({"valid": True})


MAX_IMPLEMENTATIONS = 100


class ImplementationBody(StrictSerializer):
    """Weight and state of an implementation."""

    id = StrictIntegerField()
    weight = StrictIntegerField(required=False, min_value=0, max_value=MAX_WEIGHT)
    enabled = StrictBooleanField(required=False)


class GrantableBody(StrictSerializer):
    """Limits of one grant."""

    max_hours = StrictIntegerField(default=DEFAULT_GRANT_HOURS, min_value=1, max_value=MAX_GRANT_HOURS)
    max_uses = StrictIntegerField(default=DEFAULT_GRANT_USES, min_value=1, max_value=MAX_GRANT_USES)


class ToolChangeBody(StrictSerializer):
    """The fields to change; omitted fields keep their values."""

    safety_level = StrictChoiceField(choices=LEVELS, required=False)
    reason = OptionalTextField(max_length=MAX_REASON)
    categories = serializers.ListField(
        child=StrictTextField(max_length=MAX_CATEGORY),
        required=False,
        allow_null=True,
        max_length=MAX_CATEGORIES,
        help_text="Null restores the author's categories.",
    )
    enabled = StrictBooleanField(required=False)
    description_override = StrictTextField(
        required=False,
        allow_blank=True,
        allow_null=True,
        max_length=MAX_DESCRIPTION_OVERRIDE,
        help_text="Null restores the author's description.",
    )
    grantable = GrantableBody(
        required=False,
        allow_null=True,
        help_text="Null for the default of the level; dangerous tools have no grants by default.",
    )
    implementations = serializers.ListField(child=ImplementationBody(), required=False, max_length=MAX_IMPLEMENTATIONS)
    accept_version = StrictIntegerField(
        required=False, min_value=1, help_text="The held version to take up; needs a reason."
    )
    specification = SpecificationField(
        required=False, help_text="Of an HTTP tool defined by hand: as for a new one, with the same name."
    )
    http = HttpChangeBody(required=False, help_text="Of an HTTP tool defined by hand.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not set(attrs) - {"reason"}:
            raise serializers.ValidationError("Name at least one field to change.")
        return attrs


class ToolChange(ToolDetail):
    required_scopes: ClassVar = {"GET": ["tools:read"], "PATCH": ["catalog:write"]}

    @extend_schema("tools_change", request=ToolChangeBody, responses=ToolDetailSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """Change a tool; lowering its level requires a reason. Administrators only, and no agents' tokens."""
        values = self.body(ToolChangeBody)
        reason, accepted = values.pop("reason", ""), values.pop("accept_version", None)
        definition: dict[str, Any] = {each: values.pop(each) for each in ("specification", "http") if each in values}
        try:
            if self.allowed:
                self.tool_or_404(name)
            with catalog_write_lock():  # all of the change or nothing
                if accepted is not None:
                    accept_version(self.tool_or_404(name), accepted, by=self.user, reason=reason)
                if definition:
                    update_http_tool(self.tool_or_404(name), definition, by=self.user, reason=reason)
                apply_overrides(name, values, by=self.user, reason=reason)
        except Tool.DoesNotExist:
            raise Http404 from None
        snapshot.drop_snapshot()
        return self.get(request, name)


class ToolOutcomesEndpoint(ToolEndpoint):
    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_outcomes", responses=OutcomeSerializer(many=True))
    def get(self, request: Request, name: str) -> Response:
        """Compare the implementations of a tool over its last 1,000 calls."""
        return Response(OutcomeSerializer(implementation_stats(self.tool_or_404(name)), many=True).data)
