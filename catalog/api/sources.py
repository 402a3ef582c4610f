"""The source paths of the REST API: list, add, read, change, disable, preview and synchronise."""

from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.errors import Conflict
from catalog.inventory import sources
from catalog.inventory.held_changes import accept_changes, held_digest
from catalog.inventory.overrides import MAX_REASON
from catalog.inventory.selectors import LEVELS
from catalog.inventory.source_preview import preview_source
from catalog.inventory.source_sync import sync_source
from catalog.models import Source
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.problems import refusal_responses
from catalog.rest.serializers import (
    PageQuery,
    StrictBooleanField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from catalog.rest.views import Endpoint
from catalog.sources.selection import MAX_CHOSEN, MAX_CHOSEN_LENGTH
from catalog.sources.settings import MAX_ARGUMENTS, MAX_DOCUMENT, MAX_VALUE, masked, read_secrets
from catalog.tools.registry import shipped_modules

KINDS = [Source.Kind.MCP.value, Source.Kind.OPENAPI.value]
LISTED_KINDS = [*KINDS, Source.Kind.PYTHON.value, Source.Kind.CLIENT.value]
STATUSES = Source.Status.values
CHANGES = ("new", "changed", "same", "removed")


class ChoicesField(serializers.ListField):
    child = StrictTextField(max_length=MAX_CHOSEN_LENGTH)
    max_length = MAX_CHOSEN


class ToolSettingBody(StrictSerializer):
    """An administrator's settings for one tool of a source."""

    enabled = StrictBooleanField(required=False)
    safety_level = StrictChoiceField(choices=LEVELS, required=False)
    reason = StrictTextField(required=False, allow_blank=True, max_length=MAX_REASON)


class SelectionBody(StrictSerializer):
    """The operations to import: those that one of the lists names. Without any, all are imported."""

    tags = ChoicesField(required=False, help_text="Tags of the document.")
    paths = ChoicesField(required=False, help_text="Paths, with those below them.")
    operations = ChoicesField(required=False, help_text="An `operationId`, or method and path, such as `GET /user`.")


class SourceChangeBody(StrictSerializer):
    """The fields to change; omitted fields and masked values of headers, query and environment stay as stored."""

    url = StrictTextField(required=False, allow_blank=True, max_length=2000)
    command = serializers.ListField(
        child=StrictTextField(max_length=MAX_VALUE), required=False, max_length=MAX_ARGUMENTS
    )
    document = StrictTextField(required=False, allow_blank=True, max_length=MAX_DOCUMENT)
    only = SelectionBody(required=False)
    headers = serializers.DictField(child=StrictTextField(max_length=MAX_VALUE), required=False)
    query = serializers.DictField(
        child=StrictTextField(max_length=MAX_VALUE),
        required=False,
        help_text="Parameters with credentials that are added to the query of each call.",
    )
    env = serializers.DictField(child=StrictTextField(max_length=MAX_VALUE, allow_blank=True), required=False)
    trusted = StrictBooleanField(required=False)
    enabled = StrictBooleanField(required=False)
    base_url = StrictTextField(required=False, allow_blank=True, max_length=2000)
    timeout = StrictIntegerField(required=False, min_value=1, max_value=300, help_text="Seconds; default 30.")
    tools = serializers.DictField(child=ToolSettingBody(), required=False, help_text="By the upstream's own names.")


class SourceBody(SourceChangeBody):
    """A source to add."""

    name = StrictTextField(max_length=40)
    kind = StrictChoiceField(choices=KINDS)


class AcceptanceBody(StrictSerializer):
    """Held changes to accept, as the source's `held` names them."""

    held = serializers.DictField(child=StrictTextField(max_length=64), allow_empty=False)
    reason = StrictTextField(max_length=MAX_REASON)


class SourceSerializer(serializers.Serializer[Any]):
    """A source; of kind `python` a shipped set of tools. Values of headers, query and environment are masked."""

    id = serializers.IntegerField(source="pk")
    name = serializers.CharField()
    description = serializers.SerializerMethodField(help_text="What the tools of a shipped set do; else empty.")
    kind = serializers.ChoiceField(choices=LISTED_KINDS)
    url = serializers.CharField()
    command = serializers.ListField(child=serializers.CharField())
    base_url = serializers.CharField()
    only = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="The operations that are imported: lists of tags, paths and operations. Empty: all.",
    )
    headers = serializers.SerializerMethodField()
    query = serializers.SerializerMethodField()
    env = serializers.SerializerMethodField()
    trusted = serializers.BooleanField()
    enabled = serializers.BooleanField()
    timeout = serializers.IntegerField()
    status = serializers.ChoiceField(choices=STATUSES)
    error = serializers.CharField()
    tools = serializers.SerializerMethodField()
    drifted = serializers.SerializerMethodField()
    held = serializers.SerializerMethodField()
    last_sync_at = serializers.DateTimeField(allow_null=True)

    def get_description(self, source: Source) -> str:
        """Return what the tools of a shipped set do."""
        return "" if source.is_imported else shipped_modules().get(source.name, "")

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_headers(self, source: Source) -> dict[str, str]:
        """Return the names of the headers, with masks."""
        return masked(read_secrets(source)["headers"])

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_query(self, source: Source) -> dict[str, str]:
        """Return the names of the stored query parameters, with masks."""
        return masked(read_secrets(source)["query"])

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_env(self, source: Source) -> dict[str, str]:
        """Return the names of the environment variables, with masks."""
        return masked(read_secrets(source)["env"])

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_tools(self, source: Source) -> list[str]:
        """Return the names of the tools that the source offers."""
        return [tool.name for tool in source.tools.all() if tool.registered]

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_drifted(self, source: Source) -> list[str]:
        """Return the names of the tools with a held change."""
        return [tool.name for tool in source.tools.all() if tool.held_version_id is not None]

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_held(self, source: Source) -> dict[str, str]:
        """Return the digest of each held change, by the tool's name."""
        return {tool.name: held_digest(tool) for tool in source.tools.all() if tool.held_version_id is not None}


class OfferedToolSerializer(serializers.Serializer[Any]):
    """A tool that a source would bring."""

    name = serializers.CharField()
    description = serializers.CharField()
    safety_level = StrictChoiceField(choices=LEVELS)
    why = serializers.CharField(help_text="Why it has this level.")
    change = serializers.ChoiceField(choices=CHANGES)


class SourcePreviewSerializer(serializers.Serializer[Any]):
    """The tools that a source would bring; nothing is stored."""

    tools = OfferedToolSerializer(many=True)
    problems = serializers.ListField(child=serializers.CharField())


class SyncResultSerializer(serializers.Serializer[Any]):
    """The names of the tools that a synchronisation touched; `drifted` are held."""

    added = serializers.ListField(child=serializers.CharField())
    changed = serializers.ListField(child=serializers.CharField())
    removed = serializers.ListField(child=serializers.CharField())
    drifted = serializers.ListField(child=serializers.CharField())


class SourceEndpoint(Endpoint):
    """Base class of the source endpoints: for administrators, since addresses and commands are theirs to know."""

    required_scopes: ClassVar = {
        "GET": ["catalog:write"],
        "POST": ["catalog:write"],
        "PATCH": ["catalog:write"],
        "DELETE": ["catalog:write"],
    }

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        sources.check_administrator(self.user)

    def source_or_404(self, name: str) -> Source:
        """Return an imported source or a shipped set by its name. Raises Http404."""
        source = sources.switchable_sources().prefetch_related("tools").filter(name=name).first()
        if source is None:
            raise Http404
        return source

    def imported_or_404(self, name: str) -> Source:
        """Return an imported source by its name. Raises Http404, and Conflict for a shipped set."""
        source = self.source_or_404(name)
        if not source.is_imported:
            raise Conflict("A client, or a set that ships with Toolgate, has no upstream.")
        return source


class SourceList(SourceEndpoint):
    @extend_schema("sources_list", parameters=[PageQuery], responses=page_schema(SourceSerializer))
    def get(self, request: Request) -> Response:
        """List the sources of tools: MCP servers, OpenAPI documents, clients, and the sets that ship."""
        _, at = self.page_query(PageQuery)
        page = paginate(sources.switchable_sources().defer("document").prefetch_related("tools"), order="name", at=at)
        return paginated_response(request, page, lambda source: SourceSerializer(source).data)

    @extend_schema(
        "sources_create", parameters=[IDEMPOTENCY_KEY], request=SourceBody, responses={201: SourceSerializer}
    )
    def post(self, request: Request) -> Response:
        """Add a source. It connects and imports its tools in the background; `sync/` waits for that."""

        def create() -> Response:
            source = sources.create_source(self.body(SourceBody), by=self.user)
            return Response(SourceSerializer(source).data, 201)

        return respond_once(request, create)


class SourcePreviewEndpoint(SourceEndpoint):
    @extend_schema("sources_preview", request=SourceBody, responses=SourcePreviewSerializer)
    def post(self, request: Request) -> Response:
        """Show which tools a source would bring, with their levels. An upstream that fails is one of `problems`."""
        return Response(SourcePreviewSerializer(preview_source(self.body(SourceBody), by=self.user)).data)


class SourceDetail(SourceEndpoint):
    @extend_schema("sources_read", responses=SourceSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Show a source with its tools and its state."""
        return Response(SourceSerializer(self.source_or_404(name)).data)

    @extend_schema("sources_change", request=SourceChangeBody, responses=SourceSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """Change a source; it is synchronised in the background. A client and a shipped set take `enabled` only."""
        sources.update_source(self.source_or_404(name), self.body(SourceChangeBody), by=self.user)
        return self.get(request, name)

    @extend_schema("sources_end", responses={200: SourceSerializer})
    def delete(self, request: Request, name: str) -> Response:
        """Disable a source and all of its tools."""
        sources.end_source(self.source_or_404(name), by=self.user)
        return self.get(request, name)


class SourceAcceptance(SourceEndpoint):
    @extend_schema("sources_accept", request=AcceptanceBody, responses=SourceSerializer)
    def post(self, request: Request, name: str) -> Response:
        """Accept held changes of several tools. 422 if one of them is held no more, or has changed again."""
        body = self.body(AcceptanceBody)
        accept_changes(self.imported_or_404(name), body["held"], by=self.user, reason=body["reason"])
        return Response(SourceSerializer(self.source_or_404(name)).data)


class SourceSync(SourceEndpoint):
    @extend_schema("sources_sync", request=None, responses={200: SyncResultSerializer, **refusal_responses(502)})
    def post(self, request: Request, name: str) -> Response:
        """Read the upstream now and return what changed. 502 if it fails."""
        return Response(sync_source(self.imported_or_404(name)).as_dict())
