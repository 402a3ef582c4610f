"""What in a plan is private, by whom it may be seen, and how it is shown to everyone else.

Private is what a tool that returns private data was given and gave, and what later steps made of it: a step that refers
to a private value has private arguments and a private result. So is what an agent's model says, and what it calls: it
was told what its tools gave. So are the steps that the planner adds after a person's answer: it was told the answer.
What a tool reads of a plan's memory by itself is not followed. Nothing is computed for
who may see everything, and next to nothing for plans without such a tool.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q

from catalog import signals
from catalog.access.roles import NotAllowed, agent_token_of
from catalog.calls.privacy import (
    PRIVATE_NOTICE,
    PrivateCallParts,
    can_see_private,
    field_at,
    is_own_call,
    mask,
    mask_response,
    private_parts_of,
)
from catalog.core.canonical_json import parse_json
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, ParameterError
from catalog.models import Call, Tool
from plans.documents import references
from plans.models import AGENT_TURN, MemoryItem, Plan, Step
from plans.store.transactions import plan_transaction

CALLS_PRIVATE = Exists(Tool.objects.filter(name=OuterRef("tool"), returns_private_data=True))
"""Of a step: whether its tool returns private data, loaded here or not."""
MEETS_PRIVATE = Q(CALLS_PRIVATE) | ~Q(agent="") | Q(parent__isnull=False) | Q(after_answer=True)
"""Of a step: whether its result is private for what it is, and not for what it was made of."""


@dataclass(frozen=True, slots=True)
class PrivatePlanParts:
    """What is private in one plan: calls by their steps' numbers, and the keys of its memory.

    Of those `by_models`, which a model wrote that knew private values, the descriptions and conditions are too.
    """

    steps: Mapping[int, PrivateCallParts]
    keys: frozenset[str] = frozenset()
    by_models: frozenset[int] = frozenset()

    def mask_step(self, shown: dict[str, Any]) -> dict[str, Any]:
        """Mask a step as the API shows it."""
        hidden = self.steps.get(shown["step_id"])
        if hidden is None:
            return shown
        parameters = mask(shown["parameters"]) if hidden.everything else shown["parameters"]
        masked = {"parameters": parameters, "error": shown["error"] and PRIVATE_NOTICE}
        return shown | masked | self._masked_words(shown)

    def mask_memory(self, shown: dict[str, Any]) -> dict[str, Any]:
        """Mask a plan's memory as the API shows it."""
        values = {key: mask(value) if key in self.keys else value for key, value in shown["values"].items()}
        return {"values": values, "items": [self._mask_item(item) for item in shown["items"]]}

    def _mask_item(self, item: dict[str, Any]) -> dict[str, Any]:
        error = {"error": PRIVATE_NOTICE} if "error" in item and item["step_id"] in self.steps else {}
        return item | error | self._masked_words(item)

    def _masked_words(self, shown: Mapping[str, Any]) -> dict[str, str]:
        """Return what is shown in place of the words that a model wrote into a step."""
        names = ("description", "done_check") if shown["step_id"] in self.by_models else ()
        return {name: PRIVATE_NOTICE for name in names if shown.get(name)}


NOTHING_PRIVATE = PrivatePlanParts({})


def is_owner(viewer: User, plan: Plan) -> bool:
    """Say whether the plan is the viewer's own."""
    token = agent_token_of(viewer)
    if token is not None:
        return plan.token_id == token.pk
    return viewer.pk in (plan.author_id, plan.token.user_id if plan.token else None)


def can_see_private_in_plan(viewer: User, plan: Plan) -> bool:
    """Say whether the viewer sees what is private in a plan: its owner, reviewers and administrators."""
    return can_see_private(viewer) or is_owner(viewer, plan)


def hidden_parts(viewer: User, plan: Plan) -> PrivatePlanParts:
    """Return what of a plan the viewer must not see."""
    return NOTHING_PRIVATE if can_see_private_in_plan(viewer, plan) else private_parts(plan)


def private_parts(plan: Plan) -> PrivatePlanParts:
    """Return what is private in a plan, in one query when nothing is."""
    return private_parts_from(plan, plan.steps.filter(MEETS_PRIVATE).values_list("step_id", flat=True))


def private_parts_from(plan: Plan, first: Iterable[int]) -> PrivatePlanParts:
    """Return what is private in a plan whose `first` steps call tools that return private data."""
    sources = list(first)
    return _trace_private_values(sources, load_value_flow(plan.pk)) if sources else NOTHING_PRIVATE


@dataclass(frozen=True, slots=True)
class ValueFlow:
    """How values go through one plan: the keys that each step writes, those that its arguments refer to, the steps
    that agents' steps made, and those that models wrote.
    """

    keys: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    wants: dict[int, Mapping[str, set[str]]] = field(default_factory=dict)
    agents: set[int] = field(default_factory=set)
    children: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_models: set[int] = field(default_factory=set)


def load_value_flow(plan_pk: int) -> ValueFlow:
    """Return how values go through a plan, in two queries."""
    return _load_value_flows([plan_pk])[plan_pk]


def _load_value_flows(plans: Collection[int]) -> Mapping[int, ValueFlow]:
    """Return the flows of plans by their keys, in two queries; a step writes what it says, and what it has written."""
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
            flows[plan].wants[number] = _memory_references(parameters)
    values = MemoryItem.objects.filter(plan__in=plans, type=MemoryItem.Type.VALUE, step_id__isnull=False)
    for plan, writer, key in values.values_list("plan_id", "step_id", "key"):
        flows[plan].keys[writer or 0].add(key)
    return flows


def _trace_private_values(sources: Iterable[int], flow: ValueFlow) -> PrivatePlanParts:
    """Return what is private where the values of these steps are, and came to be.

    What an agent is given was written by whoever wrote the plan, and is private only where it refers to what is, or
    where the planner wrote it after an answer.
    """
    steps = {each: PrivateCallParts(everything=each not in flow.agents or each in flow.by_models) for each in sources}
    open_ones = flow.wants.keys() - {number for number, hidden in steps.items() if hidden.everything}
    private: set[str] = set()
    while found := {key for number in steps for key in flow.keys[number]} - private:
        private |= found
        taken = {number: _private_arguments(flow.wants[number], private) for number in open_ones}
        steps |= {number: hidden for number, hidden in taken.items() if hidden is not None}
    return PrivatePlanParts(steps, frozenset(private), frozenset(flow.by_models))


def _memory_references(parameters: str) -> Mapping[str, set[str]]:
    """Return the arguments that refer to memory, each with the keys that it names."""
    wanted: dict[str, set[str]] = defaultdict(set)
    try:
        for reference in references.find(parse_json(parameters)):
            wanted[reference.where.partition(".")[0]].add(reference.key)
    except ParameterError:
        return wanted
    return wanted


def _private_arguments(wanted: Mapping[str, set[str]], private: set[str]) -> PrivateCallParts | None:
    names = frozenset(name for name, keys in wanted.items() if keys & private)
    return PrivateCallParts(names) if names else None


def hidden_by_call(calls: Collection[Call]) -> Mapping[int, PrivateCallParts]:
    """Say which calls are private: one query when none is in a plan with a tool that returns private data, else three,
    however many plans there are.
    """
    parts = _private_parts_by_ref({call.plan_ref for call in calls})
    found = ((call.pk, parts[call.plan_ref].steps.get(int(call.step_ref))) for call in calls if call.plan_ref in parts)
    return {pk: hidden for pk, hidden in found if hidden is not None}


def _private_parts_by_ref(refs: Collection[str]) -> Mapping[str, PrivatePlanParts]:
    """Return what is private in these plans, by their public ids; plans without anything private are left out."""
    sources: dict[tuple[int, str], list[int]] = defaultdict(list)
    meeting = Step.objects.filter(MEETS_PRIVATE, plan__public_id__in=refs)
    for plan, ref, number in meeting.values_list("plan_id", "plan__public_id", "step_id"):
        sources[plan, ref].append(number)
    flows = _load_value_flows([plan for plan, _ in sources]) if sources else {}
    return {ref: _trace_private_values(numbers, flows[plan]) for (plan, ref), numbers in sources.items()}


def hidden_call_parts(viewer: User, call: Call) -> PrivateCallParts | None:
    """Return what of a call the viewer must not see; None when they may see it all."""
    if can_see_private(viewer) or is_own_call(viewer, call):
        return None
    hidden = private_parts_of([call]).get(call.pk)
    return None if hidden is None or _owns_plan(viewer, call) else hidden


def _owns_plan(viewer: User, call: Call) -> bool:
    plan = Plan.objects.select_related("token").filter(public_id=call.plan_ref).first()
    return plan is not None and is_owner(viewer, plan)


def mask_call(shown: dict[str, Any], hidden: PrivateCallParts) -> dict[str, Any]:
    """Mask a call as the API shows it."""
    arguments = hidden.mask_arguments(shown["arguments"])
    said = {name: shown[name] and PRIVATE_NOTICE for name in ("reason", "message")}
    return shown | said | {"arguments": arguments, "result": mask_response(shown["result"])}


@retry_on_deadlock
def reveal_private_values(call: Call, path: str, *, by: User) -> Any:
    """Return one value of a call's response and keep in the audit log who saw it, never what it is.

    Raises NotAllowed, Conflict while there is no response, and ParameterError for a path that names no value.
    """
    if not (can_see_private(by) or is_own_call(by, call) or _owns_plan(by, call)):
        raise NotAllowed("Only who asked for the call, the plan's owner, reviewers and administrators see its values.")
    if not call.response:
        raise Conflict("This call has no response yet.")
    value = field_at(call.response_json, path)
    plan_pk = Plan.objects.only("pk").get(public_id=call.plan_ref).pk
    with plan_transaction(plan_pk, call.plan_ref):
        signals.record_fact("call.revealed", call=call, by=by, path=path)
    return value
