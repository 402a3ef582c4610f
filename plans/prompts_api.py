"""What models were asked for a plan, over REST: to its owner and administrators, as on the page."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.access.roles import NotAllowed
from catalog.rest.pagination import page_of, page_schema, paged
from catalog.rest.serializers import PageQuery
from plans.api import PlanEndpoint
from plans.llm.transcripts import Asking, Message
from plans.models import ModelUse
from plans.store.selectors import may_control


class MessageSerializer(serializers.Serializer[Message]):
    """One message, whole."""

    by = serializers.CharField(help_text="Instructions, To the model, or From the model.")
    text = serializers.CharField()


class PromptSerializer(serializers.Serializer[Asking]):
    """One time a model was asked: what it read and answered, and what that took."""

    call = serializers.CharField(source="use.call.public_id")
    purpose = serializers.CharField(source="use.purpose")
    model = serializers.CharField(source="use.model")
    read = MessageSerializer(many=True)
    said = MessageSerializer(many=True, help_text="Empty where it did not answer.")
    input_tokens = serializers.IntegerField(source="use.input_tokens")
    output_tokens = serializers.IntegerField(source="use.output_tokens")
    cost = serializers.FloatField(source="use.cost", allow_null=True, help_text="US dollars; null: not known.")
    latency_ms = serializers.IntegerField(source="use.latency_ms")
    error = serializers.CharField(source="use.error", allow_blank=True, help_text="Why there is no answer.")
    at = serializers.DateTimeField(source="use.at")


class PlanPrompts(PlanEndpoint):
    """What models were asked for one plan."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("plans_prompts", parameters=[PageQuery], responses=page_schema(PromptSerializer))
    def get(self, request: Request, public_id: str) -> Response:
        """List what models were asked for the plan, oldest first. Its owner and administrators only."""
        _, at = self.page_query(PageQuery)
        plan = self.plan(public_id)
        if not may_control(self.user, self.token, plan):
            raise NotAllowed("Only the plan's owner and administrators may read its prompts.")
        page = page_of(ModelUse.objects.filter(plan=plan).select_related("call"), order="id", at=at)
        return paged(request, page, self._shown)

    @staticmethod
    def _shown(use: ModelUse) -> Any:
        return PromptSerializer(Asking(use)).data
