"""The agents over REST: read by everyone with a role, by agents' tokens as far as they may use them.

Administrators write them.
"""

from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.serializers import PageQuery
from catalog.rest.views import Endpoint
from plans.agents import administration
from plans.agents.administration import agent_as_json
from plans.agents.definitions import AgentDocument, AgentTerms, agent_document, may_use
from plans.models import Agent
from plans.strategies import STRATEGIES

READS = ["tools:read", "catalog:write"]
WRITES = ["catalog:write"]


class AgentReachSerializer(serializers.Serializer[Any]):
    """Which tools it may call of those that its plan's owner may."""

    names = serializers.ListField(child=serializers.CharField())
    categories = serializers.ListField(child=serializers.CharField())
    max_level = serializers.CharField(help_text="safe, cautious or dangerous.")


class AgentLimitsSerializer(serializers.Serializer[Any]):
    """What one run may take; null: as much as it takes."""

    rounds = serializers.IntegerField(help_text="How often the model is asked.")
    calls = serializers.IntegerField(allow_null=True)
    tokens = serializers.IntegerField(allow_null=True)
    cost = serializers.FloatField(allow_null=True, help_text="US dollars.")
    seconds = serializers.IntegerField(allow_null=True, help_text="Of work; waiting for people is not counted.")


class AgentSerializer(serializers.Serializer[Any]):
    """An agent, its fields as they are sent; the context has the viewer."""

    name = serializers.CharField()
    instructions = serializers.CharField()
    model = serializers.CharField(allow_blank=True, help_text="Empty: what TOOLGATE_MODEL says.")
    tools = AgentReachSerializer()
    strategy = serializers.ChoiceField(choices=STRATEGIES)
    budget = AgentLimitsSerializer()
    groups = serializers.ListField(child=serializers.CharField(), help_text="Who may use it; empty: everyone.")
    enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    runs = serializers.IntegerField(help_text="How many steps it began.")
    may_use = serializers.BooleanField(help_text="Whether a step of yours may name it.")

    def to_representation(self, instance: Agent) -> dict[str, Any]:
        """Show the document with what is known beside it."""
        time = serializers.DateTimeField().to_representation
        return agent_as_json(agent_document(instance)) | {
            "created_at": time(instance.created_at),
            "updated_at": time(instance.updated_at),
            "runs": getattr(instance, "times", 0),
            "may_use": instance.enabled and may_use(self.context["viewer"], instance),
        }


class AgentEndpoint(Endpoint):
    """What the agent paths share."""

    def agent(self, name: str) -> Agent:
        """Return an agent that the caller sees; raise Http404."""
        try:
            return administration.agent_for(self.user, name)
        except Agent.DoesNotExist:
            raise Http404 from None

    def answer(self, agent: Agent, status: int = 200) -> Response:
        """Answer with an agent."""
        return Response(AgentSerializer(agent, context={"viewer": self.user}).data, status)

    def shown(self, name: str, status: int = 200) -> Response:
        """Answer with the agent as it is now."""
        return self.answer(self.agent(name), status)


class AgentList(AgentEndpoint):
    """The agents."""

    required_scopes: ClassVar = {"GET": READS, "POST": WRITES}

    @extend_schema("agents_list", parameters=[PageQuery], responses=page_schema(AgentSerializer))
    def get(self, request: Request) -> Response:
        """List the agents by name; to an agent's token those that it may use."""
        _, at = self.page_query(PageQuery)
        page = paginate(administration.agents_for(self.user), order="name", at=at)
        return paginated_response(request, page, lambda row: AgentSerializer(row, context={"viewer": self.user}).data)

    @extend_schema(
        "agents_create", parameters=[IDEMPOTENCY_KEY], request=AgentDocument, responses={201: AgentSerializer}
    )
    def post(self, request: Request) -> Response:
        """Make an agent. Administrators only."""
        return respond_once(request, lambda: self._create(request.data), lambda ref: self.shown(ref, 201))

    def _create(self, body: Any) -> Response:
        return self.shown(administration.create(body, by=self.user).name, 201)


class AgentDetail(AgentEndpoint):
    """One agent."""

    required_scopes: ClassVar = {"GET": READS, "PATCH": WRITES, "DELETE": WRITES}

    @extend_schema("agents_read", responses=AgentSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one agent."""
        return self.shown(public_id)

    @extend_schema("agents_change", request=AgentTerms, responses=AgentSerializer)
    def patch(self, request: Request, public_id: str) -> Response:
        """Change what is named; runs that have begun keep the agent as it was. Administrators only."""
        administration.change_agent(self.agent(public_id), request.data, by=self.user)
        return self.shown(public_id)

    @extend_schema("agents_end", responses={200: AgentSerializer})
    def delete(self, request: Request, public_id: str) -> Response:
        """End an agent: one that was used is kept, switched off; one that never was is gone. Administrators only."""
        return self.answer(administration.end_agent(self.agent(public_id), by=self.user))
