"""Plans, steps, events and calls as the API shows them, and what its plan and call paths take."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiResponse, PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from approvals.models import ApprovalRequest, GrantUse
from catalog.access.roles import user_display_name
from catalog.calls.privacy import PRIVATE_NOTICE
from catalog.models import Call
from catalog.rest.problems import MEDIA_TYPE, FieldErrorSerializer, ProblemSerializer
from catalog.rest.serializers import (
    MAX_ID_LENGTH,
    BlankAsNullField,
    JsonObjectField,
    OptionalTextField,
    PageQuery,
    QuerySerializer,
    StrictBooleanField,
    StrictChoiceField,
    StrictFloatField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from catalog.states import PUBLIC_STATUS
from plans.actions.clone import NO_CLONE_LINKS, CloneLinks
from plans.agents.runs import work_of_run
from plans.models import AgentRun, MemoryItem, Plan, Step
from plans.spec import MAX_STEP_ID
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store.privacy import PrivatePlanParts, can_see_private_in_plan
from plans.store.selectors import failure_reason, steps_of

MAX_WAIT = 60.0
MAX_REASON = 2000
MAX_PATH = 1000
PLAN_KINDS = Plan.Kind.values
CALL_STATUSES = sorted(set(PUBLIC_STATUS.values()))
MEMORY_TYPES = [kind.value for kind in MemoryItem.Type if kind is not MemoryItem.Type.GIVEN]
OUTCOMES = ("happened", "did_not_happen", "request_again")


class PlanQueryParameters(PageQuery):
    """How a list of plans is narrowed."""

    kind = StrictChoiceField(choices=PLAN_KINDS, default=Plan.Kind.PLAN.value)
    status = StrictChoiceField(choices=PlanStatus.values, required=False)


class EventQuery(QuerySerializer):
    """Which events: those numbered above `after`."""

    after = serializers.IntegerField(default=0, min_value=0, max_value=2**53 - 1)
    page_size = serializers.IntegerField(default=200, min_value=1, max_value=1000)


class RevealBody(StrictSerializer):
    """Which value of a call's response is to be seen."""

    path = StrictTextField(max_length=MAX_PATH)


class RevealedSerializer(serializers.Serializer[Any]):
    """One value of a call's response."""

    path = serializers.CharField()
    value = serializers.JSONField(allow_null=True)


class CallQuery(QuerySerializer):
    """How long an answer may take."""

    wait_seconds = serializers.FloatField(required=False, min_value=0, max_value=MAX_WAIT)


class CallBody(StrictSerializer):
    """A direct call."""

    tool = StrictTextField(max_length=MAX_ID_LENGTH)
    arguments = JsonObjectField()
    query_type = StrictTextField(required=False, allow_null=True, max_length=128)
    reason = OptionalTextField(max_length=MAX_REASON)
    plan = StrictTextField(required=False, allow_null=True, max_length=MAX_ID_LENGTH)
    replaces = StrictTextField(
        required=False, allow_null=True, max_length=MAX_ID_LENGTH, help_text="The failed call it takes the place of."
    )
    wait_seconds = StrictFloatField(required=False, min_value=0, max_value=MAX_WAIT)


class ActionBody(StrictSerializer):
    """An action that needs nothing said."""


class InputBody(StrictSerializer):
    """What a plan that waits for its person is given."""

    step_id = StrictIntegerField(required=False, allow_null=True, default=None, min_value=1, max_value=MAX_STEP_ID)
    text = StrictTextField(required=False, allow_blank=True, default="", help_text="The answer to what a step asks.")
    arguments = JsonObjectField(required=False, help_text="What a step that was sent back is to run with.")


class RetryBody(StrictSerializer):
    """Which failed step is to be tried again; all of them when none is named."""

    step_id = StrictIntegerField(required=False, allow_null=True, default=None, min_value=1, max_value=MAX_STEP_ID)
    arguments = JsonObjectField(
        required=False, help_text="What that step, or the only one that failed, is to run with."
    )


class SkipBody(StrictSerializer):
    """Why a person skips a step."""

    reason = StrictTextField(max_length=MAX_REASON)


class CloneBody(StrictSerializer):
    """Whether the new plan starts at once."""

    start = StrictBooleanField(required=False, default=False)


class OutcomeBody(StrictSerializer):
    """What a person says of a call whose outcome nobody knows."""

    verdict = StrictChoiceField(choices=OUTCOMES)
    result = serializers.JSONField(required=False, allow_null=True, default=None)
    comment = StrictTextField()


class PlanProblemSerializer(serializers.Serializer[Any]):
    """One thing to know about a plan."""

    path = serializers.CharField()
    line = serializers.IntegerField(allow_null=True)
    code = serializers.CharField()
    severity = serializers.ChoiceField(choices=("error", "warning", "info"))
    message = serializers.CharField()
    suggestion = serializers.CharField(allow_null=True)


class CheckSerializer(serializers.Serializer[Any]):
    """What was found in a plan."""

    valid = serializers.BooleanField()
    problems = PlanProblemSerializer(many=True)


class PlanRefusalSerializer(ProblemSerializer):
    """A refusal of a plan: `errors` lists what is wrong with the plan, or else the wrong fields of the request."""

    errors = serializers.SerializerMethodField()

    @extend_schema_field(
        PolymorphicProxySerializer(
            "PlanError", [FieldErrorSerializer, PlanProblemSerializer], resource_type_field_name=None, many=True
        )
    )
    def get_errors(self, refusal: Any) -> Any:
        """Return the errors."""
        return refusal["errors"]


PLAN_REFUSED = {(422, MEDIA_TYPE): OpenApiResponse(PlanRefusalSerializer, description="Every problem of the plan.")}


class EventSerializer(serializers.Serializer[Any]):
    """One numbered line of a plan's history."""

    seq = serializers.IntegerField()
    type = serializers.CharField()
    at = serializers.DateTimeField()
    step_id = serializers.IntegerField(allow_null=True)
    data = serializers.JSONField(source="data_json")  # type: ignore[assignment] # a field of that name


class EventPageSerializer(serializers.Serializer[Any]):
    """Events in their order; `next` while there are more."""

    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = EventSerializer(many=True)


class MemoryItemSerializer(serializers.Serializer[Any]):
    """A note of what was written, skipped or failed; the optional fields go with `step_skipped` and `step_failed`."""

    type = serializers.ChoiceField(choices=MEMORY_TYPES)
    step_id = serializers.IntegerField(allow_null=True)
    key = serializers.CharField(allow_null=True)
    at = serializers.DateTimeField()
    tool = serializers.CharField(required=False, allow_null=True)
    description = serializers.CharField(required=False)
    expected_key = serializers.CharField(required=False, allow_null=True)
    output_path = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    done_check = serializers.CharField(required=False, allow_blank=True)
    by = serializers.CharField(required=False, help_text="The person who skipped the step.")
    reason = serializers.CharField(required=False)
    error = serializers.CharField(required=False)


class MemorySerializer(serializers.Serializer[Any]):
    """A plan's memory."""

    values = serializers.DictField()
    items = MemoryItemSerializer(many=True)


class HandlerSerializer(serializers.Serializer[Any]):
    """A handler that could not be stopped when its call ended: since when it is on its own, and when it came back."""

    left_running_at = serializers.DateTimeField()
    came_back_at = serializers.DateTimeField(allow_null=True)


class AgentRunSerializer(serializers.Serializer[Any]):
    """What an agent has done at its step since it was begun or retried."""

    agent = serializers.CharField()
    rounds = serializers.IntegerField(help_text="How often its model was asked.")
    calls = serializers.IntegerField()
    tokens = serializers.IntegerField(help_text="Read and written.")
    cost = serializers.CharField(help_text="US dollars, as far as prices are known.")
    seconds = serializers.FloatField(help_text="How long its model and tools worked; waiting does not count.")
    stopped_for = serializers.ChoiceField(choices=AgentRun.Stopped.values, allow_null=True)
    waiting_for = serializers.ListField(child=serializers.IntegerField(), help_text="The steps it waits for.")


class StepSerializer(serializers.Serializer[Any]):
    """One step: what it does, and how far it has come."""

    step_id = serializers.IntegerField()
    parent = serializers.IntegerField(  # type: ignore[assignment] # a field of that name
        source="parent.step_id", allow_null=True, help_text="Of an agent's turns and calls: the agent's own step."
    )
    description = serializers.CharField()
    tool = BlankAsNullField()
    agent = BlankAsNullField()
    parameters = serializers.DictField(source="parameters_json")
    dependencies = serializers.SerializerMethodField()
    expected_key = BlankAsNullField()
    output_path = serializers.ListField(child=serializers.CharField(), source="output_path_json", allow_null=True)
    done_check = BlankAsNullField()
    status = serializers.ChoiceField(choices=StepStatus.values)
    skipped = serializers.BooleanField()
    waiting_for = BlankAsNullField(help_text=f"One of {', '.join(WaitingFor.values)}, while it waits.")
    attempt = serializers.IntegerField()
    error = BlankAsNullField()
    call = serializers.CharField(source="call.public_id", allow_null=True)
    left_running = HandlerSerializer(source="call.left_running", allow_null=True)
    approval = serializers.CharField(source="call.approval.public_id", allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    agent_run = serializers.SerializerMethodField()

    @extend_schema_field(AgentRunSerializer(allow_null=True))
    def get_agent_run(self, step: Step) -> Any:
        """Return what its agent has done so far; None of a step that no agent has begun."""
        run = getattr(step, "agent_run", None) if step.agent else None
        return None if run is None else AgentRunSerializer(work_of_run(run, step)).data

    def get_dependencies(self, step: Step) -> list[int]:
        """Return the numbers of the steps it waits for."""
        return sorted(dependency.needs.step_id for dependency in step.dependencies.all())


class CountsSerializer(serializers.Serializer[Any]):
    """How many steps there are, and how many stand where; waiting is part of in_progress, skipped of completed."""

    steps = serializers.IntegerField()
    pending = serializers.IntegerField()
    in_progress = serializers.IntegerField()
    waiting = serializers.IntegerField()
    completed = serializers.IntegerField()
    skipped = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()


class BudgetSerializer(serializers.Serializer[Any]):
    """What a plan may spend, and what it has spent: calls that started, and seconds that its tools ran."""

    calls = serializers.IntegerField(allow_null=True)
    seconds = serializers.IntegerField(allow_null=True)
    calls_used = serializers.IntegerField()
    seconds_used = serializers.FloatField()


class PlanSerializer(serializers.Serializer[Any]):
    """A plan in a list; `counts` come by the context, for all plans of the list at once, with the `viewer`."""

    id = serializers.CharField(source="public_id")
    goal = serializers.CharField()
    kind = serializers.ChoiceField(choices=PLAN_KINDS)
    status = serializers.ChoiceField(choices=PlanStatus.values)
    owner = serializers.CharField()
    requested_by = serializers.CharField(source="author.username")
    can_modify = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    deadline_at = serializers.DateTimeField(allow_null=True)
    paused_at = serializers.DateTimeField(allow_null=True, help_text="While this is set no step of the plan starts.")
    paused_by = serializers.CharField(source="paused_by.username", allow_null=True)
    budget = serializers.SerializerMethodField()
    request = serializers.SerializerMethodField()
    reply = serializers.SerializerMethodField()
    last_seq = serializers.IntegerField()
    counts = serializers.SerializerMethodField()

    def get_request(self, plan: Plan) -> str | None:
        """Return the words it was drafted from, to who may read its private values; None when it was written."""
        return self._said(plan, plan.request)

    def get_reply(self, plan: Plan) -> str | None:
        """Return what whoever asked is told in the end, to who may read its private values; None until then."""
        return self._said(plan, plan.reply)

    def _said(self, plan: Plan, text: str) -> str | None:
        if not text:
            return None
        return text if can_see_private_in_plan(self.context["viewer"], plan) else PRIVATE_NOTICE

    @extend_schema_field(BudgetSerializer(allow_null=True))
    def get_budget(self, plan: Plan) -> dict[str, float | None] | None:
        """Return what the plan may spend and has spent; None when it has no budget."""
        spent: dict[str, float | None] = {"calls_used": plan.calls_used, "seconds_used": plan.seconds_used}
        return {"calls": plan.budget_calls, "seconds": plan.budget_seconds, **spent} if plan.has_budget else None

    @extend_schema_field(CountsSerializer)
    def get_counts(self, plan: Plan) -> dict[str, int]:
        """Return how many steps stand where."""
        counts: dict[str, int] = self.context["counts"][plan.pk]
        return counts


class PlanDetailSerializer(PlanSerializer):
    """A plan with its steps; the context says what of them is `private` to the viewer, and its `clone_links`."""

    cloned_from = serializers.SerializerMethodField()
    clones = serializers.SerializerMethodField()
    failure = serializers.SerializerMethodField()
    steps = serializers.SerializerMethodField()

    def get_failure(self, plan: Plan) -> str | None:
        """Return why it failed where that is not a step's doing, such as its deadline; else None."""
        return failure_reason(plan) or None

    def get_cloned_from(self, plan: Plan) -> str | None:
        """Return the id of the plan it was cloned from, as far as the viewer may see that one."""
        return self._kin.cloned_from

    def get_clones(self, plan: Plan) -> list[str]:
        """Return the ids of its newest clones that the viewer may see."""
        return list(self._kin.clones)

    @property
    def _kin(self) -> CloneLinks:
        clone_links: CloneLinks = self.context.get("clone_links", NO_CLONE_LINKS)
        return clone_links

    @extend_schema_field(StepSerializer(many=True))
    def get_steps(self, plan: Plan) -> Any:
        """Return the steps in order."""
        private: PrivatePlanParts = self.context["private"]
        return [private.mask_step(shown) for shown in StepSerializer(steps_of(plan), many=True).data]


class CallApprovalSerializer(serializers.Serializer[Any]):
    """The request that a call waits, or waited, for."""

    id = serializers.CharField(source="public_id")
    url = serializers.SerializerMethodField()
    expires_at = serializers.DateTimeField()

    def get_url(self, request: ApprovalRequest) -> str:
        """Return the page on which people decide."""
        return f"{settings.TOOLGATE_URL}/approvals/?item={request.public_id}"


class CallGrantSerializer(serializers.Serializer[Any]):
    """The grant by which a call ran without a review."""

    id = serializers.CharField(source="grant.public_id")
    made_by = serializers.SerializerMethodField()
    created_from = serializers.CharField(source="grant.created_from.public_id", default=None, allow_null=True)

    def get_made_by(self, use: GrantUse) -> str:
        """Name who made it."""
        return user_display_name(use.grant.created_by)


class CallSerializer(serializers.Serializer[Any]):
    """One call: what was asked, where it stands, what came of it."""

    id = serializers.CharField(source="public_id")
    message = serializers.CharField(help_text="The result's message, for people and models; empty until it has ended.")
    plan = BlankAsNullField(source="plan_ref")
    step_id = serializers.SerializerMethodField()
    tool = serializers.CharField(source="tool_name")
    version = serializers.IntegerField(source="version.number")
    query_type = BlankAsNullField()
    arguments = serializers.DictField(source="arguments_json")
    status = serializers.ChoiceField(choices=CALL_STATUSES, source="public_status")
    waiting_for = serializers.CharField(allow_null=True)
    result = serializers.JSONField(source="response_json", allow_null=True)
    approval = CallApprovalSerializer(allow_null=True)
    grant = CallGrantSerializer(source="grant_use", allow_null=True)
    replaces = serializers.CharField(source="replaces.public_id", allow_null=True)
    replaced_by = serializers.CharField(source="successor", allow_null=True)
    attempt = serializers.IntegerField()
    implementation = serializers.CharField(source="implementation.reference", allow_null=True)
    reason = serializers.CharField()
    requested_by = serializers.CharField(source="requested_by.username", allow_null=True)
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    left_running = HandlerSerializer(required=False, help_text="Only of a call whose handler could not be stopped.")
    duration_ms = serializers.IntegerField(allow_null=True)

    def to_representation(self, instance: Call) -> dict[str, Any]:
        """Leave out what only few calls have."""
        shown = super().to_representation(instance)
        if shown["left_running"] is None:
            del shown["left_running"]
        return shown

    def get_step_id(self, call: Call) -> int | None:
        """Return the number of its step."""
        return int(call.step_ref) if call.step_ref else None
