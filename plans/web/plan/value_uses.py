"""Flow of values through a plan: the steps that read a value of its memory, and the sources of an argument."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils.http import urlencode

from catalog.core.canonical_json import parse_json
from catalog.errors import ParameterError, ToolgateError
from catalog.ui.json_values import path_of_names
from plans import conditions
from plans.documents import references
from plans.models import Plan
from plans.states import StepStatus
from plans.store.privacy import PrivatePlanParts

MAX_USES = 200
"""Uses of one value that its page names."""


@dataclass(frozen=True, slots=True)
class ValueUse:
    """A place in a step that reads a value: an argument, by its dotted path, or `done_check`."""

    step_id: int
    where: str
    path: str = ""
    has_started: bool = False


def uses_of(plan: Plan, key: str, private: PrivatePlanParts) -> list[ValueUse]:
    """Return the places that read a value, in the order of the steps; one query.

    Places in arguments and checks that are hidden from the viewer are named by their step only.
    """
    reads = Q(parameters__contains="${" + key) | Q(done_check__contains=key)
    rows = plan.steps.filter(reads).order_by("step_id").values_list("step_id", "status", "parameters", "done_check")
    found: list[ValueUse] = []
    for number, status, parameters, done_check in rows.iterator(chunk_size=100):
        started = status != StepStatus.PENDING
        hidden = private.steps.get(number)
        if hidden is not None and hidden.everything and any(each.key == key for each in _references(parameters)):
            found.append(ValueUse(number, "", has_started=started))
        else:
            found += [
                ValueUse(number, each.where, path_of_names(each.path), has_started=started)
                for each in dict.fromkeys(_references(parameters))
                if each.key == key
            ]
        if number not in private.by_models and key in conditions.keys_read(done_check):
            found.append(ValueUse(number, "done_check", has_started=started))
        if len(found) >= MAX_USES:
            break
    return found[:MAX_USES]


def readers_by_key(plan: Plan) -> Mapping[str, set[int]]:
    """Return for each key of a plan's memory the steps that read it; one query."""
    readers: dict[str, set[int]] = defaultdict(set)
    rows = plan.steps.filter(Q(parameters__contains="${") | ~Q(done_check=""))
    for number, parameters, done_check in rows.values_list("step_id", "parameters", "done_check"):
        keys = references.keys_in(parameters) | (conditions.keys_read(done_check) if done_check else set())
        for key in keys:
            readers[key].add(number)
    return readers


def _references(parameters: str) -> list[references.Reference]:
    if "${" not in parameters:
        return []
    try:
        return references.find(parse_json(parameters))
    except ToolgateError:
        return []


@dataclass(frozen=True, slots=True)
class ArgumentSource:
    """A value that an argument is made of: the reference, the address of the value, and the step that writes it.

    `url` is empty before the value is written; `is_known` is false if neither the plan's input nor a step has the key.
    """

    reference: str
    where: str
    url: str
    step_id: int | None
    is_known: bool


def sources_of(
    plan: Plan, argument: Any, writers: Mapping[str, int | None], written: Collection[str]
) -> Iterator[ArgumentSource]:
    """Yield the sources of an argument, each once: `writers` has the step of each key, `written` the keys in memory."""
    try:
        found = references.find(argument)
    except ParameterError:
        return
    for each in {str(each): each for each in found}.values():
        address = reverse("plan-value", args=[plan.public_id, each.key])
        query = "?" + urlencode({"path": path_of_names(each.path)}) if each.path else ""
        yield ArgumentSource(
            str(each),
            each.where,
            address + query if each.key in written else "",
            writers.get(each.key),
            each.key in writers,
        )
