"""What administrators change about tools over the API, and how a tool's implementations do beside each other."""

from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.api import ToolDetail, tool_or_404
from catalog.calls.statistics import outcomes_of
from catalog.definitions.levels import MOST_HOURS, MOST_USES, USUAL_HOURS, USUAL_USES
from catalog.definitions.tool import MAX_CATEGORY
from catalog.inventory.overrides import MAX_CATEGORIES, MAX_DESCRIPTION, MAX_REASON, MAX_WEIGHT, change_tool
from catalog.inventory.selectors import LEVELS
from catalog.models import Tool
from catalog.rest.serializers import Choice, Flag, OptionalText, StrictSerializer, Text, Whole
from catalog.rest.views import Endpoint
from catalog.serializers import OutcomeSerializer, ToolDetailSerializer

MAX_IMPLEMENTATIONS = 100


class ImplementationBody(StrictSerializer):
    """How much of a tool's plans one implementation gets."""

    id = Whole()
    weight = Whole(required=False, min_value=0, max_value=MAX_WEIGHT)
    enabled = Flag(required=False)


class GrantableBody(StrictSerializer):
    """What one grant may allow at most."""

    max_hours = Whole(default=USUAL_HOURS, min_value=1, max_value=MOST_HOURS)
    max_uses = Whole(default=USUAL_USES, min_value=1, max_value=MOST_USES)


class ToolChangeBody(StrictSerializer):
    """What is to be different about a tool; what is left out stays."""

    safety_level = Choice(choices=LEVELS, required=False)
    reason = OptionalText(max_length=MAX_REASON)
    categories = serializers.ListField(
        child=Text(max_length=MAX_CATEGORY),
        required=False,
        allow_null=True,
        max_length=MAX_CATEGORIES,
        help_text="Null: the author's again.",
    )
    enabled = Flag(required=False)
    description_override = Text(
        required=False, allow_blank=True, allow_null=True, max_length=MAX_DESCRIPTION, help_text="Null: the author's."
    )
    grantable = GrantableBody(
        required=False, allow_null=True, help_text="Null: as its level says, for dangerous tools no grants."
    )
    implementations = serializers.ListField(child=ImplementationBody(), required=False, max_length=MAX_IMPLEMENTATIONS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a change of nothing."""
        if not set(attrs) - {"reason"}:
            raise serializers.ValidationError("Say what is to be different: nothing was named.")
        return attrs


class ToolChange(ToolDetail):
    """One tool, read and changed."""

    required_scopes: ClassVar = {"GET": ["tools:read"], "PATCH": ["catalog:write"]}

    @extend_schema("tools_change", request=ToolChangeBody, responses=ToolDetailSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """Change a tool; lowering its level needs a reason. Administrators only, never an agent's token."""
        values = self.body(ToolChangeBody)
        reason = values.pop("reason", "")
        try:
            change_tool(name, values, by=self.user, reason=reason)
        except Tool.DoesNotExist:
            raise Http404 from None
        return self.get(request, name)


class ToolOutcomes(Endpoint):
    """A tool's implementations beside each other."""

    required_scopes: ClassVar = {"GET": ["tools:read"]}

    @extend_schema("tools_outcomes", responses=OutcomeSerializer(many=True))
    def get(self, request: Request, name: str) -> Response:
        """Compare the implementations of a tool over its last 1,000 calls."""
        return Response(OutcomeSerializer(outcomes_of(tool_or_404(name)), many=True).data)
