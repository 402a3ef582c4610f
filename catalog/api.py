"""The tool paths of the REST API: read, export, validate."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.dispatch import pipeline
from catalog.exports import providers
from catalog.inventory import selectors, snapshot
from catalog.models import Tool, ToolVersion
from catalog.rest.pagination import page_of, page_schema, paged
from catalog.rest.views import Endpoint
from catalog.serializers import (
    CatalogQuery,
    ListedToolSerializer,
    ProviderQuery,
    ToolDetailSerializer,
    ToolQuery,
    ValidateBody,
    ValidSerializer,
    VersionQuery,
    VersionSerializer,
)

EXPORTED = {(200, "application/json"): OpenApiTypes.OBJECT, (200, "text/plain"): OpenApiTypes.STR}
ALL_EXPORTED = {**EXPORTED, (200, "application/json"): {"type": "array", "items": {"type": "object"}}}
NOTES = OpenApiParameter(
    providers.NOTES_HEADER,
    location=OpenApiParameter.HEADER,
    response=True,
    description="A JSON list of tool, code and message: what the form leaves out, cuts, flattens or does not say.",
)


def tool_or_404(name: str) -> Tool:
    """Return the tool of this name; raise Http404."""
    try:
        return selectors.tool_named(name)
    except Tool.DoesNotExist:
        raise Http404 from None


def answered(query: dict[str, Any], versions: Iterable[ToolVersion], *, alone: bool = False) -> HttpResponseBase:
    """Answer with tools as a provider reads them, gram as text; a header says what their form cannot."""
    provider = query["provider"]
    documents, notes = providers.exported(provider, versions, strictly=query["strict"])
    if alone and not documents:
        raise ValidationError({"provider": [note.message for note in notes]})
    response: HttpResponseBase = Response(documents[0] if alone else documents)
    if provider == "gram":
        response = HttpResponse("\n\n".join(map(str, documents)), content_type="text/plain; charset=utf-8")
    if notes:
        response[providers.NOTES_HEADER] = providers.notes_text(notes)
    return response


class ToolList(Endpoint):
    """The tools."""

    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_list", parameters=[ToolQuery], responses=page_schema(ListedToolSerializer))
    def get(self, request: Request) -> Response:
        """List the tools that a source offers."""
        query, at = self.page_query(ToolQuery)
        sort = query.pop("sort")
        found = selectors.tools(selectors.ToolFilters(**query).as_q(), sort)
        page = page_of(found, order=selectors.order_of(sort), at=at)
        shown = replace(page, rows=selectors.in_full(page.rows, counted=True))
        return paged(request, shown, lambda tool: ListedToolSerializer(tool).data)


class ToolDetail(Endpoint):
    """One tool."""

    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_read", responses=ToolDetailSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Show one tool with its contract, code and use."""
        return Response(ToolDetailSerializer(tool_or_404(name)).data)


class ToolVersions(Endpoint):
    """The versions of one tool."""

    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_versions", parameters=[VersionQuery], responses=page_schema(VersionSerializer))
    def get(self, request: Request, name: str) -> Response:
        """List the versions of a tool, newest first."""
        _, at = self.page_query(VersionQuery)
        page = page_of(selectors.versions_of(tool_or_404(name)), order="-number", at=at)
        return paged(request, page, lambda version: VersionSerializer(version).data)


class ToolSchema(Endpoint):
    """One tool as a provider reads it."""

    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_schema", parameters=[ProviderQuery, NOTES], responses=EXPORTED)
    def get(self, request: Request, name: str) -> HttpResponseBase:
        """Show the tool in a provider's form."""
        version = selectors.current_version_of(tool_or_404(name))
        return answered(self.query(ProviderQuery), [version], alone=True)


class ToolSchemas(Endpoint):
    """Every tool that may be called, as a provider reads it."""

    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_schemas", parameters=[CatalogQuery, NOTES], responses=ALL_EXPORTED)
    def get(self, request: Request) -> HttpResponseBase:
        """List the tools in a provider's form, ready to be sent to it; narrowed as the list of tools is."""
        query = self.query(CatalogQuery)
        wanted = {name: query[name] for name in query.keys() - {"provider", "strict"}}
        return answered(query, selectors.callable_versions(selectors.ToolFilters(**wanted).as_q()))


class ToolValidate(Endpoint):
    """Arguments, judged without a call."""

    required_scopes: ClassVar = {"POST": ["tools:read"]}

    @extend_schema("tools_validate", request=ValidateBody, responses=ValidSerializer)
    def post(self, request: Request, name: str) -> Response:
        """Say whether the tool takes these arguments; 422 names what is wrong."""
        arguments = self.body(ValidateBody)["arguments"]
        loaded = snapshot.current(name)
        if loaded is None:
            raise Http404
        pipeline.check(loaded.tool, arguments)
        return Response({"valid": True})
