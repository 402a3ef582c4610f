"""Tools as the API shows them, and what its tool paths take."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from catalog import snapshot
from catalog.exports import PROVIDERS
from catalog.intake import Choice, JsonObject, PageQuery, QuerySerializer, StrictSerializer
from catalog.models import Tool
from catalog.selectors import LEVELS, SORTS, implementations_of, usage_of


class ToolQuery(PageQuery):
    """How a list of tools is narrowed and sorted."""

    q = serializers.CharField(required=False, allow_blank=True, max_length=200)
    category = serializers.ListField(child=serializers.CharField(max_length=64), required=False, max_length=50)
    safety_level = Choice(choices=LEVELS, required=False)
    max_level = Choice(choices=LEVELS, required=False)
    source = serializers.CharField(required=False, max_length=128)  # type: ignore[assignment] # a field of that name
    enabled = serializers.BooleanField(required=False)
    sort = Choice(choices=SORTS, default="name")


class VersionQuery(PageQuery):
    """A page of versions."""


class ProviderQuery(QuerySerializer):
    """Whose form a schema should have."""

    provider = Choice(choices=sorted(PROVIDERS), default="json")


class ValidateBody(StrictSerializer):
    """Arguments to judge."""

    arguments = JsonObject()


class ValidSerializer(serializers.Serializer[Any]):
    """The arguments fit."""

    valid = serializers.BooleanField()


class ToolSerializer(serializers.Serializer[Any]):
    """A tool in a list."""

    name = serializers.CharField()
    description = serializers.CharField(source="current_version.description")
    version = serializers.IntegerField(source="current_version.number")
    fingerprint = serializers.CharField(source="current_version.fingerprint")
    safety_level = Choice(choices=LEVELS, source="current_version.safety_level")
    reversibility = serializers.CharField(source="current_version.reversibility")
    categories = serializers.SerializerMethodField()
    source = serializers.CharField(source="source.name")  # type: ignore[assignment] # a field of that name
    enabled = serializers.BooleanField()
    registered = serializers.BooleanField()

    def get_categories(self, tool: Tool) -> list[str]:
        """Return the names of the tool's categories."""
        return [category.name for category in tool.categories.all()]


class ListedToolSerializer(ToolSerializer):
    """A tool in a list, with how much it is used."""

    calls = serializers.IntegerField(source="call_count")
    failed = serializers.IntegerField(source="failed_count")
    last_call_at = serializers.DateTimeField(allow_null=True)


class ImplementationSerializer(serializers.Serializer[Any]):
    """Code that serves a tool, and how its calls ended."""

    id = serializers.IntegerField()
    kind = serializers.CharField()
    reference = serializers.CharField()
    digest = serializers.CharField()
    weight = serializers.IntegerField()
    enabled = serializers.BooleanField()
    calls = serializers.IntegerField(source="call_count")
    completed = serializers.IntegerField(source="completed_count")
    failed = serializers.IntegerField(source="failed_count")


class UsageSerializer(serializers.Serializer[Any]):
    """How a tool's calls ended."""

    calls = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    last_call_at = serializers.DateTimeField(allow_null=True)


class ToolDetailSerializer(ToolSerializer):
    """A tool with its whole contract, its code and its use."""

    input_schema = serializers.JSONField(source="current_version.input_schema")
    output_schema = serializers.JSONField(source="current_version.output_schema", allow_null=True)
    query_types = serializers.ListField(child=serializers.CharField(), source="current_version.query_types")
    output_key = serializers.CharField(source="current_version.output_key")
    retry_safe = serializers.BooleanField(source="current_version.retry_safe")
    timeout = serializers.FloatField(source="current_version.timeout")
    annotations = serializers.JSONField(source="current_version.annotations")
    drifted = serializers.SerializerMethodField(help_text="The code loaded here is not what the catalog says.")
    implementations = serializers.SerializerMethodField()
    usage = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def get_drifted(self, tool: Tool) -> bool:
        """Say whether this process runs other code than the catalog knows."""
        loaded = snapshot.current(tool.name)
        return loaded is not None and loaded.drifted

    @extend_schema_field(ImplementationSerializer(many=True))
    def get_implementations(self, tool: Tool) -> Any:
        """Return the code that serves the tool."""
        return ImplementationSerializer(implementations_of(tool), many=True).data

    @extend_schema_field(UsageSerializer)
    def get_usage(self, tool: Tool) -> Any:
        """Return how the tool's calls ended."""
        return UsageSerializer(usage_of(tool)).data


class VersionSerializer(serializers.Serializer[Any]):
    """One immutable state of a tool's contract."""

    number = serializers.IntegerField()
    fingerprint = serializers.CharField()
    is_current = serializers.BooleanField()
    description = serializers.CharField()
    input_schema = serializers.JSONField()
    output_schema = serializers.JSONField(allow_null=True)
    query_types = serializers.ListField(child=serializers.CharField())
    output_key = serializers.CharField()
    safety_level = Choice(choices=LEVELS)
    reversibility = serializers.CharField()
    retry_safe = serializers.BooleanField()
    timeout = serializers.FloatField()
    annotations = serializers.JSONField()
    created_at = serializers.DateTimeField()
