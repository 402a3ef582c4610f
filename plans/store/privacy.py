"""Privacy of plan values: which values are private, who may see them, and masking for everyone else.

Private are: arguments and results of tools that return private data, and of proposals of envelopes with calls of such
tools; arguments and results of steps that refer to a
private value; the texts and calls of an agent's model, because it has read the results of its tools; and steps that the
planner adds after a person's answer, because it has read the answer. Example: if step 1 calls a private tool with
expected_key `person`, a step with `${person.email}` in its parameters is private too, and so is a step that refers to
that step's result. Values that a tool itself reads from the plan's memory are not traced. Nothing is computed for
viewers who may see everything, and next to nothing for plans without such tools.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, Value
from django.db.models.functions import Concat, StrIndex
from django.http import HttpResponse

from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from catalog import signals
from catalog.access.roles import NotAllowed, agent_token_of
from catalog.calls.blobs import content_response
from catalog.calls.privacy import (
    PRIVATE_NOTICE,
    PrivateCallParts,
    can_see_private,
    field_at,
    is_own_call,
    mask,
    mask_content,
    mask_response,
    private_parts_of,
)
from catalog.core.canonical_json import parse_json
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, ParameterError
from catalog.models import ApiToken, Call, Tool
from plans.documents import references
from plans.models import AGENT_TURN, MemoryItem, Plan, Step
from plans.store.selectors import call_for
from plans.store.transactions import plan_transaction

CALLS_PRIVATE = Exists(Tool.objects.filter(name=OuterRef("tool"), returns_private_data=True))
"""For a step: true if its tool returns private data, whether loaded in this process or not."""
_QUOTED_NAME = Concat(Value('"'), "name", Value('"'))
PROPOSES_PRIVATE = Q(tool=PROPOSE_ENVELOPE) & Exists(
    Tool.objects.filter(returns_private_data=True)
    .annotate(
        place=StrIndex(OuterRef("parameters"), _QUOTED_NAME),
        given_place=StrIndex(OuterRef("given_arguments"), _QUOTED_NAME),
    )
    .filter(Q(place__gt=0) | Q(given_place__gt=0))
)
"""For a step: true if it proposes an envelope for calls of a tool that returns private data.

Conditions and sums of the proposal are arguments of private calls. A text that only looks like the name of such a tool
makes the proposal private too.
"""
MEETS_PRIVATE = Q(CALLS_PRIVATE) | PROPOSES_PRIVATE | ~Q(agent="") | Q(parent__isnull=False) | Q(after_answer=True)
"""For a step: true if its result is private in itself, regardless of the values it refers to."""


@dataclass(frozen=True, slots=True)
class PrivatePlanParts:
    """The private parts of one plan: calls by step number, memory keys, and steps written `by_models`."""

    steps: Mapping[int, PrivateCallParts]
    keys: frozenset[str] = frozenset()
    by_models: frozenset[int] = frozenset()

    def mask_step(self, step: dict[str, Any]) -> dict[str, Any]:
        """Return the API representation of a step with its private parts masked."""
        hidden = self.steps.get(step["step_id"])
        if hidden is None:
            return step
        parameters = mask(step["parameters"]) if hidden.everything else step["parameters"]
        masked = {"parameters": parameters, "error": step["error"] and PRIVATE_NOTICE}
        return step | masked | self._masked_words(step)

    def mask_memory(self, memory: dict[str, Any]) -> dict[str, Any]:
        """Return the API representation of a plan's memory with its private parts masked."""
        values = {key: mask(value) if key in self.keys else value for key, value in memory["values"].items()}
        items = []
        for item in memory["items"]:
            error = {"error": PRIVATE_NOTICE} if "error" in item and item["step_id"] in self.steps else {}
            items.append(item | error | self._masked_words(item))
        return {"values": values, "items": items}

    def _masked_words(self, step: Mapping[str, Any]) -> dict[str, str]:
        names = ("description", "done_check") if step["step_id"] in self.by_models else ()
        return {name: PRIVATE_NOTICE for name in names if step.get(name)}


NOTHING_PRIVATE = PrivatePlanParts({})


def is_owner(viewer: User, plan: Plan) -> bool:
    token = agent_token_of(viewer)
    if token is not None:
        return plan.token_id == token.pk
    return viewer.pk in (plan.author_id, plan.token.user_id if plan.token else None)


def can_see_private_in_plan(viewer: User, plan: Plan) -> bool:
    """Return whether the viewer may see a plan's private values: its owner, reviewers and administrators may."""
    return can_see_private(viewer) or is_owner(viewer, plan)


def hidden_parts(viewer: User, plan: Plan) -> PrivatePlanParts:
    return NOTHING_PRIVATE if can_see_private_in_plan(viewer, plan) else private_parts(plan)


def private_parts(plan: Plan) -> PrivatePlanParts:
    """Return the private parts of a plan; one query if there are none."""
    return private_parts_from(plan, plan.steps.filter(MEETS_PRIVATE).values_list("step_id", flat=True))


def private_parts_from(plan: Plan, first: Iterable[int]) -> PrivatePlanParts:
    """Return the private parts of a plan that follow from the private steps `first`."""
    sources = list(first)
    return _trace_private_values(sources, load_value_flow(plan.pk)) if sources else NOTHING_PRIVATE


@dataclass(frozen=True, slots=True)
class ValueFlow:
    """Value flow of one plan: keys written by each step, keys its arguments refer to, agents' steps and their children,
    and steps written by models.
    """

    keys: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    wants: dict[int, Mapping[str, set[str]]] = field(default_factory=dict)
    agents: set[int] = field(default_factory=set)
    children: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_models: set[int] = field(default_factory=set)


def load_value_flow(plan_pk: int) -> ValueFlow:
    return _load_value_flows([plan_pk])[plan_pk]


def _load_value_flows(plans: Collection[int]) -> Mapping[int, ValueFlow]:
    """Return the value flows of plans by key; two queries. Includes each step's declared key and the keys it wrote."""
    flows: dict[int, ValueFlow] = defaultdict(ValueFlow)
    rows = Step.objects.filter(plan__in=plans)
    fields = ("plan_id", "step_id", "expected_key", "parameters", "agent", "after_answer", "parent__step_id", "tool")
    for plan, number, key, parameters, agent, after_answer, parent, tool in rows.values_list(*fields):
        flows[plan].keys[number].update({key} if key else ())
        flows[plan].agents.update({number} if agent else ())
        flows[plan].by_models.update({number} if after_answer or (parent and tool != AGENT_TURN) else ())
        if parent is not None:
            flows[plan].children[parent].add(number)
        if "${" in parameters:
            by_argument = flows[plan].wants[number] = defaultdict(set)
            with suppress(ParameterError):
                for reference in references.find(parse_json(parameters)):
                    by_argument[reference.where.partition(".")[0]].add(reference.key)
    values = MemoryItem.objects.filter(plan__in=plans, type=MemoryItem.Type.VALUE, step_id__isnull=False)
    for plan, writer, key in values.values_list("plan_id", "step_id", "key"):
        flows[plan].keys[writer or 0].add(key)
    return flows


def _trace_private_values(sources: Iterable[int], flow: ValueFlow) -> PrivatePlanParts:
    """Return the private parts that follow from these private steps.

    The arguments of an agent's step come from the plan's author and are private only if they refer to a private value
    or the planner wrote them after an answer.
    """
    steps = {each: PrivateCallParts(everything=each not in flow.agents or each in flow.by_models) for each in sources}
    open_ones = flow.wants.keys() - {number for number, hidden in steps.items() if hidden.everything}
    private: set[str] = set()
    while found := {key for number in steps for key in flow.keys[number]} - private:
        private |= found
        for number in open_ones:
            names = frozenset(name for name, keys in flow.wants[number].items() if keys & private)
            if names:
                steps[number] = PrivateCallParts(names)
    return PrivatePlanParts(steps, frozenset(private), frozenset(flow.by_models))


def hidden_by_call(calls: Collection[Call]) -> Mapping[int, PrivateCallParts]:
    """Return the private parts of calls by the call's key, without calls that have none, in at most three queries."""
    sources: dict[tuple[int, str], list[int]] = defaultdict(list)
    meeting = Step.objects.filter(MEETS_PRIVATE, plan__public_id__in={call.plan_ref for call in calls})
    for plan, ref, number in meeting.values_list("plan_id", "plan__public_id", "step_id"):
        sources[plan, ref].append(number)
    flows = _load_value_flows([plan for plan, _ in sources]) if sources else {}
    parts = {ref: _trace_private_values(numbers, flows[plan]) for (plan, ref), numbers in sources.items()}
    found = ((call.pk, parts[call.plan_ref].steps.get(int(call.step_ref))) for call in calls if call.plan_ref in parts)
    return {pk: hidden for pk, hidden in found if hidden is not None}


def hidden_call_parts(viewer: User, call: Call) -> PrivateCallParts | None:
    """Return the parts of a call that are hidden from the viewer; None if nothing is."""
    if can_see_private(viewer) or is_own_call(viewer, call):
        return None
    hidden = private_parts_of([call]).get(call.pk)
    return None if hidden is None or _owns_plan(viewer, call) else hidden


def _owns_plan(viewer: User, call: Call) -> bool:
    plan = Plan.objects.select_related("token").filter(public_id=call.plan_ref).first()
    return plan is not None and is_owner(viewer, plan)


def mask_call(call: dict[str, Any], private_parts: PrivateCallParts) -> dict[str, Any]:
    """Return the API representation of a call with its private parts masked."""
    arguments = private_parts.mask_arguments(call["arguments"])
    texts = {name: call[name] and PRIVATE_NOTICE for name in ("reason", "message")}
    results = {"result": mask_response(call["result"]), "content": mask_content(call["content"])}
    return call | texts | {"arguments": arguments} | results


def content_response_for(viewer: User, token: ApiToken | None, public_id: str, number: int) -> HttpResponse:
    """Return the bytes of one content block of a call.

    Raises Call.DoesNotExist for a call that the viewer may not see, NotAllowed if its result is private, and Http404.
    """
    call = call_for(viewer, token, public_id)
    if hidden_call_parts(viewer, call) is not None:
        raise NotAllowed("The result of this call is private: only its requester, reviewers and administrators see it.")
    return content_response(call, number)


@retry_on_deadlock
def reveal_private_values(call: Call, path: str, *, by: User) -> Any:
    """Return one value of a call's response; the audit log records who saw it, never the value.

    Raises NotAllowed, Conflict if there is no response yet, and ParameterError if the path has no value.
    """
    if not (can_see_private(by) or is_own_call(by, call) or _owns_plan(by, call)):
        raise NotAllowed(
            "Only the requester, the plan's owner, reviewers and administrators may see the values of this call."
        )
    if not call.response:
        raise Conflict("This call has no response yet.")
    value = field_at(call.response_json, path)
    plan_pk = Plan.objects.only("pk").get(public_id=call.plan_ref).pk
    with plan_transaction(plan_pk, call.plan_ref):
        signals.record_fact("call.revealed", call=call, by=by, path=path)
    return value
