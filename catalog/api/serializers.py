"""Serializers of tools, and of the bodies and queries of the tool endpoints."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from catalog.calls.statistics import implementation_stats
from catalog.exports.providers import PROVIDERS
from catalog.inventory import snapshot
from catalog.inventory.http_tools import shown_request
from catalog.inventory.selectors import LEVELS, SORT_KEYS, call_counts
from catalog.models import Tool
from catalog.rest.serializers import (
    BlankAsNullField,
    JsonObjectField,
    PageQuery,
    QuerySerializer,
    StrictChoiceField,
    StrictSerializer,
)
from catalog.ui.version_changes import ChangeSentence, VersionChange

VERSION_STATUSES = ("current", "held", "earlier")
TOOL_STATUSES = ("ready", "drifted", "disabled", "removed")


class ToolFilters(QuerySerializer):
    q = serializers.CharField(required=False, allow_blank=True, max_length=200)
    category = serializers.ListField(child=serializers.CharField(max_length=64), required=False, max_length=50)
    safety_level = StrictChoiceField(choices=LEVELS, required=False)
    max_level = StrictChoiceField(choices=LEVELS, required=False)
    source = serializers.CharField(required=False, max_length=128)  # type: ignore[assignment] # a field of that name


class ToolQuery(ToolFilters, PageQuery):
    enabled = serializers.BooleanField(required=False)
    sort = StrictChoiceField(choices=SORT_KEYS, default="name")


class VersionQuery(PageQuery):
    """A page of versions."""


class ProviderQuery(QuerySerializer):
    provider = StrictChoiceField(choices=sorted(PROVIDERS), default="json")
    strict = serializers.BooleanField(default=False, help_text="OpenAI's strict mode, for the tools that support it.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["strict"] and attrs["provider"] != "openai":
            raise serializers.ValidationError({"strict": ["Only the provider openai has a strict mode."]})
        return attrs


class CatalogQuery(ToolFilters, ProviderQuery):
    """The provider's format, and the filters of the tool list."""


class ValidateBody(StrictSerializer):
    """Arguments to validate."""

    arguments = JsonObjectField()


class ValidSerializer(serializers.Serializer[Any]):
    """The arguments are valid."""

    valid = serializers.BooleanField()


class ToolSerializer(serializers.Serializer[Any]):
    """A tool in a list."""

    name = serializers.CharField()
    description = serializers.CharField(source="current_version.description")
    version = serializers.IntegerField(source="current_version.number")
    fingerprint = serializers.CharField(source="current_version.fingerprint")
    safety_level = StrictChoiceField(choices=LEVELS, source="current_version.safety_level")
    reversibility = serializers.CharField(source="current_version.reversibility")
    categories = serializers.SerializerMethodField()
    source = serializers.CharField(source="source.name")  # type: ignore[assignment] # a field of that name
    enabled = serializers.BooleanField(
        source="is_in_use", help_text="False also if its source is disabled or no longer offers it."
    )
    registered = serializers.BooleanField()

    def get_categories(self, tool: Tool) -> list[str]:
        """Return the names of the tool's categories."""
        return [category.name for category in tool.categories.all()]


class ListedToolSerializer(ToolSerializer):
    """A tool in a list, with its usage."""

    calls = serializers.IntegerField(source="call_count", help_text="In the last 14 days.")
    failed = serializers.IntegerField(source="failed_count", help_text="In the last 14 days.")
    last_call_at = serializers.DateTimeField(allow_null=True)


class OutcomeSerializer(serializers.Serializer[Any]):
    """An implementation of a tool, with its results in the tool's last 1,000 calls."""

    id = serializers.IntegerField(source="implementation.pk")
    kind = serializers.CharField(source="implementation.kind")
    reference = serializers.CharField(source="implementation.reference")
    digest = serializers.CharField(source="implementation.digest")
    weight = serializers.IntegerField(source="implementation.weight")
    enabled = serializers.BooleanField(source="implementation.enabled")
    registered = serializers.BooleanField(source="implementation.registered")
    share = serializers.FloatField(help_text="Share of new plans that use it, 0 to 1.")
    calls = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    success_rate = serializers.FloatField(allow_null=True, help_text="Share of ended calls that completed, 0 to 1.")
    p50_ms = serializers.FloatField(allow_null=True)
    p95_ms = serializers.FloatField(allow_null=True)
    last_call_at = serializers.DateTimeField(allow_null=True)


class UsageSerializer(serializers.Serializer[Any]):
    """Counts of a tool's calls."""

    calls = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    last_call_at = serializers.DateTimeField(allow_null=True)


class HttpSerializer(serializers.Serializer[Any]):
    """The request that a call of an HTTP tool becomes."""

    method = serializers.CharField()
    url = serializers.CharField()
    headers = serializers.DictField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="The tool's own headers, with masks instead of values; null except for administrators.",
    )
    timeout = serializers.IntegerField(help_text="Seconds.")


class ToolDetailSerializer(ToolSerializer):
    """A tool with its schemas, settings, implementations and usage. `viewer` in the context is who reads it."""

    input_schema = serializers.JSONField(source="current_version.input_schema")
    output_schema = serializers.JSONField(source="current_version.output_schema", allow_null=True)
    query_types = serializers.ListField(child=serializers.CharField(), source="current_version.query_types")
    output_key = serializers.CharField(source="current_version.output_key")
    retry_safe = serializers.BooleanField(source="current_version.retry_safe")
    timeout = serializers.FloatField(source="current_version.timeout")
    annotations = serializers.JSONField(source="current_version.annotations")
    declared_description = serializers.CharField(help_text="The author's description.")
    description_override = BlankAsNullField(help_text="The description that models read instead.")
    declared_level = serializers.CharField(help_text="The level declared in code.")
    level_override = BlankAsNullField(help_text="The level set by an administrator.")
    categories_override = serializers.JSONField(allow_null=True, help_text="Set by an administrator.")
    grantable = serializers.JSONField(
        allow_null=True, help_text="Limits of one grant, max_hours and max_uses; null if not set."
    )
    accepts_overrides = serializers.BooleanField()
    returns_private_data = serializers.BooleanField()
    examples = serializers.JSONField(help_text="Objects with description, arguments and result.")
    drifted = serializers.SerializerMethodField(help_text="True if the loaded code differs from the current version.")
    status = serializers.ChoiceField(choices=TOOL_STATUSES)
    held_version = serializers.IntegerField(
        source="held_version.number", default=None, allow_null=True, help_text="A change that waits for acceptance."
    )
    http = serializers.SerializerMethodField()
    implementations = serializers.SerializerMethodField()
    usage = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def get_drifted(self, tool: Tool) -> bool:
        """Return True if the code loaded in this process differs from the current version."""
        loaded = snapshot.callable_tool(tool.name)
        return loaded is not None and loaded.drifted

    @extend_schema_field(HttpSerializer(allow_null=True))
    def get_http(self, tool: Tool) -> Any:
        """Return the request of an HTTP tool; None for others."""
        return shown_request(tool, self.context["viewer"])

    @extend_schema_field(OutcomeSerializer(many=True))
    def get_implementations(self, tool: Tool) -> Any:
        """Return the tool's implementations."""
        return OutcomeSerializer(implementation_stats(tool), many=True).data

    @extend_schema_field(UsageSerializer)
    def get_usage(self, tool: Tool) -> Any:
        """Return the counts of the tool's calls."""
        return UsageSerializer(call_counts(tool)).data


class VersionChangeSerializer(serializers.Serializer[Any]):
    """One difference of a held change: `kind` is add, del or edit."""

    kind = serializers.CharField()
    subject = serializers.CharField()
    text = serializers.CharField()


class VersionSerializer(serializers.Serializer[Any]):
    """An immutable version of a tool's definition; its context has the tool's `held` change, or None.

    `changes` are the differences of the held change from the current version: at the held version, or at the current
    one if only the request changes.
    """

    number = serializers.IntegerField()
    fingerprint = serializers.CharField()
    status = serializers.SerializerMethodField()
    is_current = serializers.BooleanField()
    changes = serializers.SerializerMethodField()
    description = serializers.CharField()
    input_schema = serializers.JSONField()
    output_schema = serializers.JSONField(allow_null=True)
    query_types = serializers.ListField(child=serializers.CharField())
    output_key = serializers.CharField()
    safety_level = StrictChoiceField(choices=LEVELS)
    reversibility = serializers.CharField()
    retry_safe = serializers.BooleanField()
    timeout = serializers.FloatField()
    annotations = serializers.JSONField()
    created_at = serializers.DateTimeField()

    @extend_schema_field(StrictChoiceField(choices=VERSION_STATUSES))
    def get_status(self, version: Any) -> str:
        """Return whether the version is the one that is called, the held one, or an earlier one."""
        if version.is_current:
            return "current"
        held: VersionChange | None = self.context["held"]
        return "held" if held is not None and held.new.pk == version.pk else "earlier"

    @extend_schema_field(VersionChangeSerializer(many=True, allow_null=True))
    def get_changes(self, version: Any) -> Any:
        """Return the differences of the held change; null for other versions."""
        held: VersionChange | None = self.context["held"]
        if held is None or held.new.pk != version.pk:
            return None
        described = [ChangeSentence("edit", "Description", held.described[1].strip())] if held.described else []
        return VersionChangeSerializer([*held.sentences, *described], many=True).data
