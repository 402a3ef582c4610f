"""The tool paths of the REST API: read, export, validate."""

from typing import ClassVar

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import dispatch, selectors, snapshot
from catalog.endpoints import Endpoint
from catalog.exports import PROVIDERS
from catalog.models import Tool
from catalog.pages import page_of, page_schema, paged
from catalog.serializers import (
    ListedToolSerializer,
    ProviderQuery,
    ToolDetailSerializer,
    ToolQuery,
    ValidateBody,
    ValidSerializer,
    VersionQuery,
    VersionSerializer,
)


def tool_or_404(name: str) -> Tool:
    """Return the tool of this name; raise Http404."""
    try:
        return selectors.tool_named(name)
    except Tool.DoesNotExist:
        raise Http404 from None


class ToolList(Endpoint):
    """The tools."""

    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_list", parameters=[ToolQuery], responses=page_schema(ListedToolSerializer))
    def get(self, request: Request) -> Response:
        """List the tools that a source offers."""
        query, at = self.page_query(ToolQuery)
        order = selectors.order_of(query.pop("sort"))
        page = page_of(selectors.tools(selectors.ToolFilters(**query)), order=order, at=at)
        return paged(request, page, lambda tool: ListedToolSerializer(tool).data)


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

    @extend_schema("tools_schema", parameters=[ProviderQuery], responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, name: str) -> Response:
        """Show the tool in a provider's form."""
        export = PROVIDERS[self.query(ProviderQuery)["provider"]]
        return Response(export(selectors.current_version_of(tool_or_404(name))))


class ToolSchemas(Endpoint):
    """Every tool that may be called, as a provider reads it."""

    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_schemas", parameters=[ProviderQuery], responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        """List the tools in a provider's form, ready to be sent to it."""
        export = PROVIDERS[self.query(ProviderQuery)["provider"]]
        return Response([export(version) for version in selectors.callable_versions()])


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
        dispatch.check(loaded.tool, arguments)
        return Response({"valid": True})
