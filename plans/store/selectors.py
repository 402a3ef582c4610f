"""Queries of plans and calls limited to what a viewer may see, and counts of steps by status."""

from collections.abc import Collection, Iterable
from datetime import timedelta
from functools import cache
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet

from approvals.models import ApprovalRequest, GrantUse
from catalog.access.roles import can_see_all, has_role
from catalog.core import clock
from catalog.core.rows import JoinedReader, row_reader
from catalog.models import ApiToken, Call, Implementation, ToolVersion
from plans.models import Event, MemoryItem, Plan, Step, StepDependency
from plans.states import PLAN_TERMINAL, PlanStatus, StepStatus

ZERO_COUNTS = dict.fromkeys(("steps", *StepStatus.values, "waiting", "skipped"), 0)


def step_counts(plans: Iterable[Plan]) -> dict[int, dict[str, int]]:
    """Return plan key → counts of steps by status; `waiting` is part of in_progress, `skipped` of completed."""
    counts = {plan.pk: dict(ZERO_COUNTS) for plan in plans}
    steps = Step.objects.filter(plan__in=counts, parent=None).order_by()
    kinds = steps.values_list("plan_id", "status", "waiting_for", "skipped").annotate(count=Count("pk"))
    for plan_pk, status, waiting_for, skipped, count in kinds:
        of_plan = counts[plan_pk]
        of_plan["steps"] += count
        of_plan[status] += count
        of_plan["waiting"] += count if status == StepStatus.IN_PROGRESS and waiting_for else 0
        of_plan["skipped"] += count if skipped else 0
    return counts


RUNNING_SHOWN = 5
STEP_WAITS_FOR_PEOPLE = Q(waiting_for__in=("approval", "input", "outcome"), ready_at=None)
"""Steps that wait for a person. Of a plan that waits for several reasons, the alphabetically last one is shown."""


def plans_for(viewer: User, token: ApiToken | None = None) -> QuerySet[Plan]:
    """Return the plans the viewer may see: all with any role, otherwise their own; an agent's token sees its own."""
    plans = Plan.objects.select_related("author", "token", "paused_by").order_by("-created_at", "-id")
    if token is not None and token.kind == ApiToken.Kind.AGENT:
        return plans.filter(token=token)
    return plans if can_see_all(viewer) else plans.filter(Q(author=viewer) | Q(token__user=viewer))


def plan_owners_for(viewer: User) -> QuerySet[User]:
    """Return the people who own plans or direct calls that the viewer may see, at the cost of the people alone."""
    # One look into the index of plans for each person; `IN (SELECT author …)` reads all plans.
    owned = Plan.objects.filter(author=OuterRef("pk"))
    return User.objects.filter(Exists(owned)) if can_see_all(viewer) else User.objects.filter(pk=viewer.pk)


def plan_tokens_for(viewer: User) -> QuerySet[ApiToken]:
    """Return the tokens with which plans or direct calls that the viewer may see were made, as above."""
    made = Plan.objects.filter(token=OuterRef("pk"))
    return ApiToken.objects.filter(Exists(made)) if can_see_all(viewer) else ApiToken.objects.filter(user=viewer)


def plan_titles(viewer: User, refs: Collection[str]) -> dict[str, str]:
    """Return the goals of plans that the viewer may see, by public id, without direct calls. One query."""
    seen = plans_for(viewer).filter(public_id__in=refs, kind=Plan.Kind.PLAN).order_by()
    return dict(seen.values_list("public_id", "goal"))


def plan_for(viewer: User, token: ApiToken | None, public_id: str) -> Plan:
    return plans_for(viewer, token).get(public_id=public_id)


DEADLINE_PASSED = "The plan's deadline passed."


def failure_reason(plan: Plan) -> str:
    """Return why a plan failed if no step is the cause, such as a passed deadline; otherwise an empty string.

    At its deadline a plan is ended by the ticker, which stores the reason, or by a worker whose handler was cut off.
    """
    if plan.status != PlanStatus.FAILED:
        return ""
    ended = plan.events.filter(type="plan.failed").order_by("-seq").first()
    reason = str(ended.data_json.get("reason", "")) if ended else ""
    was_late = plan.deadline_at is not None and plan.completed_at is not None and plan.completed_at >= plan.deadline_at
    return reason or (DEADLINE_PASSED if was_late else "")


def calls_for(viewer: User) -> QuerySet[Call]:
    """Return the calls the viewer may see: all with any role, otherwise their own and those of plans they may see."""
    if can_see_all(viewer):
        return Call.objects.all()
    return Call.objects.filter(
        Q(requested_by=viewer) | Q(plan_ref__in=plans_for(viewer).order_by().values("public_id"))
    )


def call_for(viewer: User, token: ApiToken | None, public_id: str) -> Call:
    """Return a call that the viewer may see, for its representation. Raises Call.DoesNotExist for any other."""
    # One hand-written statement, without schemas and arguments of related rows: the ORM took 0.8 ms to build it, in
    # every call over REST.
    with connection.cursor() as cursor:
        cursor.execute(_call_statement(), [public_id])
        row = cursor.fetchone()
    if row is None:
        raise Call.DoesNotExist
    call = _call_reader().read(row)
    for name, value in zip(CALL_ANNOTATIONS, row[-len(CALL_ANNOTATIONS) :], strict=True):
        setattr(call, name, value)
    if token is not None and token.kind == ApiToken.Kind.AGENT:
        is_visible = call.token_id == token.pk
    else:
        is_visible = can_see_all(viewer) or call.requested_by_id == viewer.pk
    if not is_visible and not plans_for(viewer, token).filter(public_id=call.plan_ref).exists():
        raise Call.DoesNotExist
    return call


CALL_ANNOTATIONS = ("successor", "envelope", "mismatch")
"""Set on a call that was read for one viewer: the ids of the call that replaced it and of its envelope, if any.

The envelope is the one through which it ran, or whose promise, `mismatch`, it broke.
"""


@cache
def _call_reader() -> JoinedReader[Call]:
    return JoinedReader(
        row_reader(Call, "call"),
        version=row_reader(ToolVersion, "version", "id", "number"),
        implementation=row_reader(Implementation, "implementation", "id", "reference"),
        requested_by=row_reader(User, "requester", "id", "username"),
        approval=row_reader(ApprovalRequest, "request", "id", "public_id", "expires_at"),
        grant_use=row_reader(GrantUse, "grant_use", "id", "grant"),
        replaces=row_reader(Call, "replaced", "id", "public_id"),
    )


@cache
def _call_statement() -> str:
    """Return the query for a call by its id; its last columns are CALL_ANNOTATIONS."""
    return (
        f"SELECT {_call_reader().columns}, "  # noqa: S608 - names of our columns
        "successor.public_id, envelope.public_id, mismatch.mismatch FROM catalog_call AS call "
        "JOIN catalog_toolversion AS version ON version.id = call.version_id "
        "LEFT JOIN catalog_implementation AS implementation ON implementation.id = call.implementation_id "
        "LEFT JOIN auth_user AS requester ON requester.id = call.requested_by_id "
        "LEFT JOIN approvals_approvalrequest AS request ON request.call_id = call.id "
        "LEFT JOIN approvals_grantuse AS grant_use ON grant_use.call_id = call.id "
        "LEFT JOIN approvals_envelopeuse AS envelope_use ON envelope_use.call_id = call.id "
        "LEFT JOIN approvals_envelopeitem AS item ON item.id = envelope_use.item_id "
        "LEFT JOIN approvals_envelopemismatch AS mismatch ON mismatch.call_id = call.id "
        "LEFT JOIN approvals_envelope AS envelope ON envelope.id = COALESCE(item.envelope_id, mismatch.envelope_id) "
        "LEFT JOIN catalog_call AS replaced ON replaced.id = call.replaces_id "
        "LEFT JOIN catalog_call AS successor ON successor.replaces_id = call.id WHERE call.public_id = %s"
    )


def newest_call_of(plan_ref: str) -> Call:
    """Return the newest call of a plan that has calls; found by its steps, as calls are not indexed by plan."""
    steps = Step.objects.filter(plan__public_id=plan_ref)
    return Call.objects.filter(Q(pk__in=steps.values("call")) | Q(pk__in=steps.values("retry_of"))).latest("pk")


def may_control(viewer: User, token: ApiToken | None, plan: Plan) -> bool:
    """Return whether the viewer may start, cancel or settle the plan: its owner and administrators may."""
    if token is not None and token.kind == ApiToken.Kind.AGENT:
        return plan.token_id == token.pk
    owns = viewer.pk in (plan.author_id, plan.token.user_id if plan.token else None)
    return owns or has_role(viewer, "administrator")


STEP_FIELDS = (
    *("step_id", "parent__step_id", "description", "tool", "agent", "parameters", "expected_key", "output_path"),
    *("done_check", "status", "skipped", "waiting_for", "attempt", "error", "started_at", "completed_at", "plan"),
    *("call__public_id", "call__left_running_at", "call__came_back_at", "call__approval__public_id"),
    *(
        f"agent_run__{name}"
        for name in (
            "agent__name",
            "rounds",
            "calls",
            "tokens",
            "cost",
            "seconds",
            "stopped_for",
            "pending",
            "ended_at",
        )
    ),
)
"""Columns that API representations of steps have; whole rows have ten times as much."""


def steps_of(plan: Plan) -> list[Step]:
    """Return the plan's steps in order with STEP_FIELDS, dependencies and runs of agents; two queries."""
    steps = plan.steps.select_related("call__approval", "parent", "agent_run__agent").only(*STEP_FIELDS)
    needs = StepDependency.objects.select_related("needs").only("step_id", "needs__step_id")
    return list(steps.prefetch_related(Prefetch("dependencies", needs)))


def events_after(plan: Plan, seq: int, limit: int = 1000) -> list[Event]:
    return list(plan.events.filter(seq__gt=seq).order_by("seq")[:limit])


def memory_of(plan: Plan) -> dict[str, Any]:
    """Return the plan's memory: `values` by key, and `items` about values written and steps skipped or failed."""
    rows = list(plan.memory.exclude(type=MemoryItem.Type.GIVEN).order_by("id"))
    values = {row.key: row.value_json for row in rows if row.type == MemoryItem.Type.VALUE}
    items = []
    for row in rows:
        item = {"type": row.type, "step_id": row.step_id, "key": row.key or None, "at": row.at}
        if row.type != MemoryItem.Type.VALUE:
            expected = {"expected_key": row.key or None} if row.type == MemoryItem.Type.STEP_SKIPPED else {}
            item |= {**expected, **row.value_json}
        items.append(item)
    return {"values": values, "items": items}


def running_plans(viewer: User | AnonymousUser) -> list[dict[str, Any]]:
    """Return the newest running plans for the sidebar: public id, goal, status and `waiting_for`."""
    if not isinstance(viewer, User):
        return []
    recent = clock.now() - timedelta(days=7)
    plans = plans_for(viewer).filter(kind=Plan.Kind.PLAN, status=PlanStatus.IN_PROGRESS, created_at__gt=recent)
    rows = list(plans.values_list("pk", "public_id", "goal", "status", "paused_at")[:RUNNING_SHOWN])
    waiting_steps = Step.objects.filter(STEP_WAITS_FOR_PEOPLE, plan__in=[pk for pk, *_ in rows])
    waiting = dict(waiting_steps.order_by("waiting_for").values_list("plan_id", "waiting_for"))
    return [
        {"id": ref, "goal": goal, "status": "paused" if paused_at else status, "waiting_for": waiting.get(pk, "")}
        for pk, ref, goal, status, paused_at in rows
    ]


def is_over(plan: Plan) -> bool:
    return plan.status in PLAN_TERMINAL
