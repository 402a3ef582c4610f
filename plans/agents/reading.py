"""Agents as they are submitted: read strictly, and what they name looked up. Every problem names its place."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from django.contrib.auth.models import Group
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from catalog.inventory import snapshot
from catalog.models import Category
from catalog.schemas import Problem, refuse
from catalog.secrets.detectors import find_secrets
from plans.agents.settings import AgentBudget, AgentDocument, AgentTerms, ToolFilter
from plans.documents.reading import did_you_mean, problem_of
from plans.engine.questions import TOOL as ASK_USER
from plans.llm.tools import UNOFFERED

NAME_SAID = "A name has 1 to 64 lower-case letters, digits, '-' and '_', and begins with a letter."
MODEL_SAID = "Write provider:model, such as openai:gpt-5; leave it empty for what TOOLGATE_MODEL says."
MONEY_SAID = "Write an amount of US dollars with at most six decimal places."
NO_SECRETS = "Instructions are read by everyone with a role, and by the model's provider: take this secret out."
PARTS: Mapping[str, type[BaseModel]] = {"tools": ToolFilter, "budget": AgentBudget}
MergedT = TypeVar("MergedT", bound=BaseModel)
ReadT = TypeVar("ReadT", bound=AgentTerms)


def read_agent(body: object) -> AgentDocument:
    """Return the agent that a body describes; raise ParameterError with every problem of it."""
    document = _read(AgentDocument, body)
    refuse(list(_unfit(document, AgentTerms())))
    return document


def read_change(body: object, before: AgentDocument) -> AgentDocument:
    """Return an agent with the changes that a body names, also within its tools and its budget. Raises ParameterError.

    What it names already may be gone meanwhile.
    """
    change = _read(AgentTerms, body)
    if not change.model_fields_set:
        refuse([Problem("", "required", "Say what is to be different: nothing was named.")])
    changed = _merged(before, change)
    refuse(list(_unfit(changed, before)))
    return changed


def _read(kind: type[ReadT], body: object) -> ReadT:
    try:
        return kind.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        refuse([_told(each, kind) for each in error.errors(include_url=False)])
        raise


def _merged(before: MergedT, change: BaseModel) -> MergedT:
    """Return a document with the fields that were given, those of its parts one by one."""
    new = {}
    for name in change.model_fields_set:
        value = getattr(change, name)
        new[name] = _merged(getattr(before, name), value) if name in PARTS else value
    return before.model_copy(update=new)


def _told(error: ErrorDetails, kind: type[BaseModel]) -> Problem:
    """Return what pydantic found as people are told it, with the nearest field for one that is unknown."""
    place = error["loc"]
    part = PARTS.get(str(place[0])) if len(place) > 1 else None
    found = problem_of({**error, "loc": place[:2]} if part else error, part or kind)
    message = found.message
    if error["type"] == "string_pattern_mismatch":
        message = NAME_SAID
    elif error["type"].startswith("decimal_"):
        message = MONEY_SAID
    elif error["type"] in ("enum", "literal_error"):
        message = f"This must be {error.get('ctx', {}).get('expected', 'one of the words')}."
    path = ".".join(map(str, place))
    return Problem(path, found.code, f"{message} {found.suggestion}" if found.suggestion else message)


def _unfit(document: AgentTerms, before: AgentTerms) -> Iterator[Problem]:
    """Yield what cannot be used of what is new: names of what is not there, a model nobody could ask, secrets."""
    provider, _, model = document.model.partition(":")
    if document.model and not (provider and model and document.model.isascii() and document.model.isprintable()):
        yield Problem("model", "invalid", MODEL_SAID)
    if isinstance(document, AgentDocument) and document.name == "new":
        yield Problem("name", "reserved", "No agent is called new: its page would be that of a new one.")
    if find_secrets(document.instructions):
        yield Problem("instructions", "secret_in_instructions", NO_SECRETS)
    there = snapshot.all_current()
    yield from _unknown("tools.names", document.tools.names, before.tools.names, list(there), "tool")
    for place, name in enumerate(document.tools.names):
        if name in there and name != ASK_USER and not UNOFFERED.isdisjoint(there[name].tool.categories):
            yield Problem(f"tools.names.{place}", "not_for_agents", f"The tool {name} is none that an agent may call.")
    if set(document.tools.categories) - set(before.tools.categories):
        known = list(Category.objects.order_by("name").values_list("name", flat=True))
        yield from _unknown("tools.categories", document.tools.categories, before.tools.categories, known, "category")
    if set(document.groups) - set(before.groups):
        known = list(Group.objects.order_by("name").values_list("name", flat=True))
        yield from _unknown("groups", document.groups, before.groups, known, "group")


def _unknown(path: str, names: Sequence[str], before: Sequence[str], known: list[str], what: str) -> Iterator[Problem]:
    """Yield each new name that nothing has, with the nearest that there are."""
    for place, name in enumerate(names):
        if name not in known and name not in before:
            nearest = did_you_mean(name, known)
            message = f"There is no {what} called {name}."
            yield Problem(f"{path}.{place}", f"unknown_{what}", f"{message} {nearest}" if nearest else message)


def as_sent(document: AgentDocument) -> dict[str, Any]:
    """Return an agent as clients send and get it: its name first, costs as numbers."""
    dumped = document.model_dump(mode="json")
    cost = document.budget.cost
    dumped["budget"]["cost"] = None if cost is None else float(cost)
    return {"name": dumped.pop("name"), **dumped}
