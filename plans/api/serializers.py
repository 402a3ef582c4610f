"""Serializers of plans, steps, events and calls, and of the bodies and queries of their endpoints."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiResponse, PolymorphicProxySerializer, extend_schema_field
from pydantic_core import to_jsonable_python
from rest_framework import serializers

from approvals.models import ApprovalRequest, GrantUse, PolicyRevision
from catalog.access.roles import user_display_name
from catalog.calls.blobs import served_blocks
from catalog.calls.privacy import PRIVATE_NOTICE
from catalog.dispatch.pipeline import Allow, Deny, Hold
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
from plans.actions.call import Rehearsal
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
    """Filters of the list."""

    kind = StrictChoiceField(choices=PLAN_KINDS, default=Plan.Kind.PLAN.value)
    status = StrictChoiceField(choices=PlanStatus.values, required=False)


class EventQuery(QuerySerializer):
    """The number after which events are listed, and the page size."""

    after = serializers.IntegerField(default=0, min_value=0, max_value=2**53 - 1)
    page_size = serializers.IntegerField(default=200, min_value=1, max_value=1000)


class RevealBody(StrictSerializer):
    """The path of a value, relative to the call's result."""

    path = StrictTextField(max_length=MAX_PATH)


class RevealedSerializer(serializers.Serializer[Any]):
    """One value of a call's result."""

    path = serializers.CharField()
    value = serializers.JSONField(allow_null=True)


class CallQuery(QuerySerializer):
    """The longest time to wait for the call to end."""

    wait_seconds = serializers.FloatField(required=False, min_value=0, max_value=MAX_WAIT)


class CallBody(StrictSerializer):
    """A direct call."""

    tool = StrictTextField(max_length=MAX_ID_LENGTH)
    arguments = JsonObjectField()
    query_type = StrictTextField(required=False, allow_null=True, max_length=128)
    reason = OptionalTextField(max_length=MAX_REASON)
    plan = StrictTextField(required=False, allow_null=True, max_length=MAX_ID_LENGTH)
    replaces = StrictTextField(
        required=False, allow_null=True, max_length=MAX_ID_LENGTH, help_text="Id of the failed call that it replaces."
    )
    wait_seconds = StrictFloatField(required=False, min_value=0, max_value=MAX_WAIT)


class PreviewBody(StrictSerializer):
    """The arguments of the call."""

    arguments = JsonObjectField()


class CallPreviewSerializer(serializers.Serializer[Rehearsal]):
    """The effect of the policies on a call, and the tool's preview, or null if the tool has none."""

    safety_level = serializers.CharField(source="level")
    effect = serializers.SerializerMethodField()
    message = serializers.SerializerMethodField()
    preview = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ChoiceField(choices=PolicyRevision.Effect.values))
    def get_effect(self, rehearsal: Rehearsal) -> str:
        return {Allow: "allow", Hold: "hold", Deny: "deny"}[type(rehearsal.verdict)]

    def get_message(self, rehearsal: Rehearsal) -> str | None:
        """Return the message of a policy that denies the call, or null."""
        return rehearsal.verdict.message if isinstance(rehearsal.verdict, Deny) else None

    @extend_schema_field(serializers.DictField(allow_null=True))
    def get_preview(self, rehearsal: Rehearsal) -> Any:
        return to_jsonable_python(rehearsal.preview)


class ActionBody(StrictSerializer):
    """An empty body."""


class InputBody(StrictSerializer):
    """Input for a step that waits for its user."""

    step_id = StrictIntegerField(required=False, allow_null=True, default=None, min_value=1, max_value=MAX_STEP_ID)
    text = StrictTextField(required=False, allow_blank=True, default="", help_text="The answer to a step's question.")
    arguments = JsonObjectField(required=False, help_text="New arguments for a step with requested changes.")


class RetryBody(StrictSerializer):
    """The failed step to retry; all failed steps by default."""

    step_id = StrictIntegerField(required=False, allow_null=True, default=None, min_value=1, max_value=MAX_STEP_ID)
    arguments = JsonObjectField(required=False, help_text="New arguments for that step, or for the only failed one.")


class SkipBody(StrictSerializer):
    """The reason for a skip."""

    reason = StrictTextField(max_length=MAX_REASON)


class CloneBody(StrictSerializer):
    """Options of a clone."""

    start = StrictBooleanField(required=False, default=False)


class OutcomeBody(StrictSerializer):
    """Settlement of an unknown outcome."""

    verdict = StrictChoiceField(choices=OUTCOMES)
    result = serializers.JSONField(required=False, allow_null=True, default=None)
    comment = StrictTextField()


class PlanProblemSerializer(serializers.Serializer[Any]):
    """An error, warning or note about a plan."""

    path = serializers.CharField()
    line = serializers.IntegerField(allow_null=True)
    code = serializers.CharField()
    severity = serializers.ChoiceField(choices=("error", "warning", "info"))
    message = serializers.CharField()
    suggestion = serializers.CharField(allow_null=True)


class CheckSerializer(serializers.Serializer[Any]):
    """Result of a check."""

    valid = serializers.BooleanField()
    problems = PlanProblemSerializer(many=True)


class PlanRefusalSerializer(ProblemSerializer):
    """An error about a plan: `errors` lists the problems of the plan, or the invalid fields of the request."""

    errors = serializers.SerializerMethodField()

    @extend_schema_field(
        PolymorphicProxySerializer(
            "PlanError", [FieldErrorSerializer, PlanProblemSerializer], resource_type_field_name=None, many=True
        )
    )
    def get_errors(self, refusal: Any) -> Any:
        return refusal["errors"]


PLAN_REFUSED = {
    (422, MEDIA_TYPE): OpenApiResponse(
        PlanRefusalSerializer, description="The plan or a field is invalid; `errors` lists each problem."
    )
}


class EventSerializer(serializers.Serializer[Any]):
    """A numbered event of a plan."""

    seq = serializers.IntegerField()
    type = serializers.CharField()
    at = serializers.DateTimeField()
    step_id = serializers.IntegerField(allow_null=True)
    data = serializers.JSONField(source="data_json")  # type: ignore[assignment] # a field of that name


class EventPageSerializer(serializers.Serializer[Any]):
    """Events in order; `next` is null at the end."""

    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = EventSerializer(many=True)


class MemoryItemSerializer(serializers.Serializer[Any]):
    """A note about a value, a skip or a failure; the optional fields belong to `step_skipped` and `step_failed`."""

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
    """A handler that could not be stopped when its call ended, and the time it returned, if it has."""

    left_running_at = serializers.DateTimeField()
    came_back_at = serializers.DateTimeField(allow_null=True)


class AgentRunSerializer(serializers.Serializer[Any]):
    """Work of an agent on its step since the step was started or retried."""

    agent = serializers.CharField()
    rounds = serializers.IntegerField(help_text="Requests to its model.")
    calls = serializers.IntegerField()
    tokens = serializers.IntegerField(help_text="Input and output tokens.")
    cost = serializers.CharField(help_text="US dollars, for models with a known price.")
    seconds = serializers.FloatField(help_text="Working time of its model and tools, without waits.")
    stopped_for = serializers.ChoiceField(choices=AgentRun.Stopped.values, allow_null=True)
    waiting_for = serializers.ListField(
        child=serializers.IntegerField(), help_text="Numbers of the steps it waits for."
    )


class StepSerializer(serializers.Serializer[Any]):
    """A step of a plan."""

    step_id = serializers.IntegerField()
    parent = serializers.IntegerField(  # type: ignore[assignment] # a field of that name
        source="parent.step_id", allow_null=True, help_text="Number of the agent's step, for its turns and calls."
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
    waiting_for = BlankAsNullField(help_text=f"One of {', '.join(WaitingFor.values)}, or null.")
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
        run = getattr(step, "agent_run", None) if step.agent else None
        return None if run is None else AgentRunSerializer(work_of_run(run, step)).data

    def get_dependencies(self, step: Step) -> list[int]:
        """Return the numbers of the steps it depends on."""
        return sorted(dependency.needs.step_id for dependency in step.dependencies.all())


class CountsSerializer(serializers.Serializer[Any]):
    """Counts of steps by status. `in_progress` includes `waiting`, `completed` includes `skipped`."""

    steps = serializers.IntegerField()
    pending = serializers.IntegerField()
    in_progress = serializers.IntegerField()
    waiting = serializers.IntegerField()
    completed = serializers.IntegerField()
    skipped = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()


class BudgetSerializer(serializers.Serializer[Any]):
    """Budget of a plan and its use: started calls, and seconds of tool time."""

    calls = serializers.IntegerField(allow_null=True)
    seconds = serializers.IntegerField(allow_null=True)
    calls_used = serializers.IntegerField()
    seconds_used = serializers.FloatField()


class PlanSerializer(serializers.Serializer[Any]):
    """A plan in a list. The context has the `counts` of all plans, and the `viewer`."""

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
    paused_at = serializers.DateTimeField(allow_null=True, help_text="While set, no step of the plan starts.")
    paused_by = serializers.CharField(source="paused_by.username", allow_null=True)
    budget = serializers.SerializerMethodField()
    request = serializers.SerializerMethodField()
    reply = serializers.SerializerMethodField()
    last_seq = serializers.IntegerField()
    counts = serializers.SerializerMethodField()

    def get_request(self, plan: Plan) -> str | None:
        """Return the request the plan was drafted from, or None; masked for users who may not read private values."""
        return self._masked(plan, plan.request)

    def get_reply(self, plan: Plan) -> str | None:
        """Return the reply to the requester, or None before it is written; masked like the request."""
        return self._masked(plan, plan.reply)

    def _masked(self, plan: Plan, text: str) -> str | None:
        if not text:
            return None
        return text if can_see_private_in_plan(self.context["viewer"], plan) else PRIVATE_NOTICE

    @extend_schema_field(BudgetSerializer(allow_null=True))
    def get_budget(self, plan: Plan) -> dict[str, float | None] | None:
        spent: dict[str, float | None] = {"calls_used": plan.calls_used, "seconds_used": plan.seconds_used}
        return {"calls": plan.budget_calls, "seconds": plan.budget_seconds, **spent} if plan.has_budget else None

    @extend_schema_field(CountsSerializer)
    def get_counts(self, plan: Plan) -> dict[str, int]:
        counts: dict[str, int] = self.context["counts"][plan.pk]
        return counts


class PlanDetailSerializer(PlanSerializer):
    """A plan with its steps. The context also has the `private` parts and the `clone_links`."""

    cloned_from = serializers.SerializerMethodField()
    clones = serializers.SerializerMethodField()
    failure = serializers.SerializerMethodField()
    steps = serializers.SerializerMethodField()

    def get_failure(self, plan: Plan) -> str | None:
        """Return why the plan failed if not because of a step, such as its deadline; else None."""
        return failure_reason(plan) or None

    def get_cloned_from(self, plan: Plan) -> str | None:
        """Return the id of the original plan if the viewer may see it, else None."""
        return self._clone_links.cloned_from

    def get_clones(self, plan: Plan) -> list[str]:
        """Return the ids of the newest clones that the viewer may see."""
        return list(self._clone_links.clones)

    @property
    def _clone_links(self) -> CloneLinks:
        clone_links: CloneLinks = self.context.get("clone_links", NO_CLONE_LINKS)
        return clone_links

    @extend_schema_field(StepSerializer(many=True))
    def get_steps(self, plan: Plan) -> Any:
        private: PrivatePlanParts = self.context["private"]
        return [private.mask_step(step) for step in StepSerializer(steps_of(plan), many=True).data]


class CallApprovalSerializer(serializers.Serializer[Any]):
    """The approval request of a call."""

    id = serializers.CharField(source="public_id")
    url = serializers.SerializerMethodField()
    expires_at = serializers.DateTimeField()

    def get_url(self, request: ApprovalRequest) -> str:
        """Return the URL of the approval page."""
        return f"{settings.TOOLGATE_URL}/approvals/?item={request.public_id}"


MISMATCH_HELP = (
    "The promise that the call broke, so that it waits beside the envelope: `tool`, `argument:PATH`, `count`, `sum`, "
    "`expired`, `ended` if that was before its time, or `rule` if its policy or the approvers do not let the envelope "
    "cover it. Null if it ran."
)


class CallGrantSerializer(serializers.Serializer[Any]):
    """The grant that allowed a call without a review."""

    id = serializers.CharField(source="grant.public_id")
    made_by = serializers.SerializerMethodField()
    created_from = serializers.CharField(source="grant.created_from.public_id", default=None, allow_null=True)

    def get_made_by(self, use: GrantUse) -> str:
        """Return the name of the person who created the grant."""
        return user_display_name(use.grant.created_by)


class ResultWarningSerializer(serializers.Serializer[Any]):
    """A defect of an answer that was kept."""

    code = serializers.ChoiceField(choices=["output_schema", "not_json", "cut"])
    message = serializers.CharField()


class CallSerializer(serializers.Serializer[Any]):
    """A call: its arguments, status and result."""

    id = serializers.CharField(source="public_id")
    message = serializers.CharField(
        help_text="The result's message, for people and models; empty until the call has ended."
    )
    plan = BlankAsNullField(source="plan_ref")
    step_id = serializers.SerializerMethodField()
    tool = serializers.CharField(source="tool_name")
    version = serializers.IntegerField(source="version.number")
    query_type = BlankAsNullField()
    arguments = serializers.DictField(source="arguments_json")
    defaults = serializers.ListField(
        child=serializers.CharField(),
        source="default_paths",
        help_text="Dotted paths of the arguments that were not given and hold the tool's defaults.",
    )
    omitted = serializers.ListField(
        child=serializers.CharField(),
        source="omitted_paths",
        help_text="Dotted paths of arguments that were null and left out, because the tool allows no null there.",
    )
    status = serializers.ChoiceField(choices=CALL_STATUSES, source="public_status")
    waiting_for = serializers.CharField(allow_null=True)
    result = serializers.JSONField(source="response_json", allow_null=True)
    content = serializers.SerializerMethodField(
        help_text=(
            "MCP content blocks of the result, as the upstream sent them. Images, audio and binary resources "
            "have `url` and `bytes` in place of their data; `cut` marks a block that was not kept in full."
        ),
    )
    warnings = ResultWarningSerializer(many=True, source="warnings_json")
    approval = CallApprovalSerializer(allow_null=True)
    grant = CallGrantSerializer(source="grant_use", allow_null=True)
    envelope = serializers.CharField(
        allow_null=True, help_text="The one through which it ran, or that it fell outside."
    )
    mismatch = serializers.CharField(allow_null=True, help_text=MISMATCH_HELP)
    replaces = serializers.CharField(source="replaces.public_id", allow_null=True)
    replaced_by = serializers.CharField(source="successor", allow_null=True)
    attempt = serializers.IntegerField()
    implementation = serializers.CharField(source="implementation.reference", allow_null=True)
    reason = serializers.CharField()
    requested_by = serializers.CharField(source="requested_by.username", allow_null=True)
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    left_running = HandlerSerializer(required=False, help_text="Only for a call whose handler could not be stopped.")
    duration_ms = serializers.IntegerField(allow_null=True)

    def to_representation(self, instance: Call) -> dict[str, Any]:
        """Return the call, without `left_running` if it is null."""
        document = super().to_representation(instance)
        if document["left_running"] is None:
            del document["left_running"]
        return document

    @extend_schema_field(serializers.ListField(child=serializers.DictField()))
    def get_content(self, call: Call) -> list[dict[str, Any]]:
        return served_blocks(call)

    def get_step_id(self, call: Call) -> int | None:
        """Return the number of the step, or None."""
        return int(call.step_ref) if call.step_ref else None
