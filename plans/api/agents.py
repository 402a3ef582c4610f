"""REST endpoints of agents."""

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
    """The tools the agent may call, within those of the plan's owner."""

    names = serializers.ListField(child=serializers.CharField())
    categories = serializers.ListField(child=serializers.CharField())
    max_level = serializers.CharField(help_text="The highest level: safe, cautious or dangerous.")


class AgentLimitsSerializer(serializers.Serializer[Any]):
    """Limits of one run; null for no limit."""

    rounds = serializers.IntegerField(help_text="Requests to the model.")
    calls = serializers.IntegerField(allow_null=True)
    tokens = serializers.IntegerField(allow_null=True)
    cost = serializers.FloatField(allow_null=True, help_text="US dollars.")
    seconds = serializers.IntegerField(allow_null=True, help_text="Working time, without waits for people.")


class AgentSerializer(serializers.Serializer[Any]):
    """An agent. The context has the `viewer`."""

    name = serializers.CharField()
    instructions = serializers.CharField()
    model = serializers.CharField(allow_blank=True, help_text="Empty for the model in TOOLGATE_MODEL.")
    tools = AgentReachSerializer()
    strategy = serializers.ChoiceField(choices=STRATEGIES)
    budget = AgentLimitsSerializer()
    groups = serializers.ListField(
        child=serializers.CharField(), help_text="Groups that may use it; empty for everyone."
    )
    enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    runs = serializers.IntegerField(help_text="Number of steps it has started.")
    may_use = serializers.BooleanField(help_text="True if your plans may use it.")

    def to_representation(self, instance: Agent) -> dict[str, Any]:
        time = serializers.DateTimeField().to_representation
        return agent_as_json(agent_document(instance)) | {
            "created_at": time(instance.created_at),
            "updated_at": time(instance.updated_at),
            "runs": getattr(instance, "times", 0),
            "may_use": instance.enabled and may_use(self.context["viewer"], instance),
        }


class AgentEndpoint(Endpoint):
    def agent(self, name: str) -> Agent:
        try:
            return administration.agent_for(self.user, name)
        except Agent.DoesNotExist:
            raise Http404 from None

    def answer(self, agent: Agent, status: int = 200) -> Response:
        return Response(AgentSerializer(agent, context={"viewer": self.user}).data, status)

    def detail_response(self, name: str, status: int = 200) -> Response:
        return self.answer(self.agent(name), status)


class AgentList(AgentEndpoint):
    """The agents."""

    required_scopes: ClassVar = {"GET": READS, "POST": WRITES}

    @extend_schema("agents_list", parameters=[PageQuery], responses=page_schema(AgentSerializer))
    def get(self, request: Request) -> Response:
        """List the agents by name. An agent's token sees those it may use."""
        _, at = self.page_query(PageQuery)
        page = paginate(administration.agents_for(self.user), order="name", at=at)
        return paginated_response(request, page, lambda row: AgentSerializer(row, context={"viewer": self.user}).data)

    @extend_schema(
        "agents_create", parameters=[IDEMPOTENCY_KEY], request=AgentDocument, responses={201: AgentSerializer}
    )
    def post(self, request: Request) -> Response:
        """Create an agent. Administrators only."""
        return respond_once(
            request,
            lambda: self.detail_response(administration.create(request.data, by=self.user).name, 201),
            lambda ref: self.detail_response(ref, 201),
        )


class AgentDetail(AgentEndpoint):
    """One agent."""

    required_scopes: ClassVar = {"GET": READS, "PATCH": WRITES, "DELETE": WRITES}

    @extend_schema("agents_read", responses=AgentSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one agent."""
        return self.detail_response(public_id)

    @extend_schema("agents_change", request=AgentTerms, responses=AgentSerializer)
    def patch(self, request: Request, public_id: str) -> Response:
        """Change the given fields. Runs that have started keep the old definition. Administrators only."""
        administration.change_agent(self.agent(public_id), request.data, by=self.user)
        return self.detail_response(public_id)

    @extend_schema("agents_end", responses={200: AgentSerializer})
    def delete(self, request: Request, public_id: str) -> Response:
        """End an agent: a used agent is disabled and kept, an unused one is deleted. Administrators only."""
        return self.answer(administration.end_agent(self.agent(public_id), by=self.user))
