"""REST endpoints of sessions: list those with calls, and show one with its to-do list and newest calls."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.serializers import PageQuery
from catalog.states import PUBLIC_STATUS
from plans.api.plans import PlanEndpoint
from plans.coding_agents.sessions import Armed, AsksElsewhere, NotArmed, armed_state
from plans.sessions.lists import SessionKey
from plans.sessions.overview import SessionOverview, newest_plans_of_sessions, session_overview, session_rows
from plans.states import PlanStatus, StepStatus

MAX_KEY = 2**63 - 1


class SessionQuery(PageQuery):
    """Filters of the list."""

    status = serializers.ChoiceField(choices=PlanStatus.values, required=False, help_text="Status of its to-do list.")
    token = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_KEY, help_text="Id of a token that made a call in it."
    )


class SessionSerializer(serializers.Serializer[Any]):
    """A session in a list. `id` is that of its to-do list, or else of its newest plan; `name` is empty by default.

    `goal`, `status`, `created_at` and `completed_at` describe its to-do list; they are null without one.
    """

    id = serializers.CharField()
    name = serializers.CharField()
    requested_by = serializers.CharField(source="author.username")
    token = serializers.CharField(source="token.name", allow_null=True, default=None)
    token_id = serializers.IntegerField(source="token.pk", allow_null=True, default=None)
    goal = serializers.CharField(source="todo_list.goal", allow_null=True, default=None)
    status = serializers.ChoiceField(
        choices=PlanStatus.values, source="todo_list.status", allow_null=True, default=None
    )
    created_at = serializers.DateTimeField(source="todo_list.created_at", allow_null=True, default=None)
    completed_at = serializers.DateTimeField(source="todo_list.completed_at", allow_null=True, default=None)
    last_active_at = serializers.DateTimeField()


class ListedStepSerializer(serializers.Serializer[Any]):
    """A step of a session's to-do list."""

    step_id = serializers.IntegerField(source="step.step_id")
    description = serializers.CharField(source="step.description")
    status = serializers.ChoiceField(choices=StepStatus.values, source="step.status")
    completed_at = serializers.DateTimeField(source="step.completed_at", allow_null=True)


class SessionCallSerializer(serializers.Serializer[Any]):
    """Summary of a call in a session."""

    id = serializers.CharField(source="call.public_id")
    tool = serializers.CharField(source="call.tool_name")
    status = serializers.SerializerMethodField()
    plan = serializers.CharField(source="call.plan_ref")
    step_id = serializers.IntegerField(source="call.step_ref")
    created_at = serializers.DateTimeField(source="call.created_at")

    def get_status(self, made: Any) -> str:
        """Return the public status of the call."""
        return str(PUBLIC_STATUS[made.call.status])


class ArmedSerializer(serializers.Serializer[Armed]):
    """A coding agent's client that asks before it runs its own tools: since when, when checked, and how it asks."""

    since = serializers.DateTimeField()
    checked_at = serializers.DateTimeField(allow_null=True)
    how = serializers.CharField()


class SessionDetailSerializer(serializers.Serializer[Any]):
    """A session with its to-do list, if any, and its newest calls, newest first.

    `armed` is null and `why_not_armed` a text if its coding agent does not ask before it runs its own tools, as far as
    can be known. Both are null for other sessions.
    """

    id = serializers.CharField()
    name = serializers.CharField()
    requested_by = serializers.CharField(source="author.username")
    token = serializers.CharField(source="token.name", allow_null=True)
    token_id = serializers.IntegerField(source="token.pk", allow_null=True)
    goal = serializers.CharField(source="row.goal", allow_null=True)
    status = serializers.ChoiceField(choices=PlanStatus.values, source="row.status", allow_null=True)
    created_at = serializers.DateTimeField(source="row.created_at", allow_null=True)
    completed_at = serializers.DateTimeField(source="row.completed_at", allow_null=True)
    steps = ListedStepSerializer(many=True)
    calls = SessionCallSerializer(many=True)
    armed = serializers.SerializerMethodField()
    why_not_armed = serializers.SerializerMethodField()

    @extend_schema_field(ArmedSerializer(allow_null=True))
    def get_armed(self, overview: SessionOverview) -> Any:
        state = self.context["armed"]
        return ArmedSerializer(state).data if isinstance(state, Armed) else None

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_why_not_armed(self, overview: SessionOverview) -> str | None:
        state = self.context["armed"]
        return state.why if isinstance(state, AsksElsewhere | NotArmed) else None


class SessionListEndpoint(PlanEndpoint):
    """The sessions."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("sessions_list", parameters=[SessionQuery], responses=page_schema(SessionSerializer))
    def get(self, request: Request) -> Response:
        """List the sessions with calls, most recently active first."""
        query, at = self.page_query(SessionQuery)
        filters = {"through": query.get("token"), "status": query.get("status")}
        page = paginate(newest_plans_of_sessions(self.user, self.token, **filters), order="-id", at=at)
        rows = {row.newest.pk: row for row in session_rows(page.rows)}
        return paginated_response(request, page, lambda plan: SessionSerializer(rows[plan.pk]).data)


class SessionDetail(PlanEndpoint):
    """One session."""

    required_scopes: ClassVar = {"GET": ["plans:read"]}

    @extend_schema("sessions_read", responses=SessionDetailSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show the session that a plan belongs to, with its current to-do list and newest calls."""
        plan = self.plan(public_id)
        armed = armed_state(SessionKey.of_plan(plan))
        return Response(SessionDetailSerializer(session_overview(plan), context={"armed": armed}).data)
