"""Form of an agent: fields from a stored agent or a submitted form, and the request body built from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from catalog.errors import ParameterError
from plans.agents.definitions import AgentDocument, ToolFilter
from plans.models import Agent

LIMITS = ("rounds", "calls", "tokens", "cost", "seconds")
TEXTS = ("name", "instructions", "model", "max_level", "strategy", "updated_at", *LIMITS)
LISTS = ("names", "categories", "groups")
MOST_DIGITS = 12


@dataclass(slots=True)
class AgentForm:
    """Contents of fields and checkboxes, with problems by field."""

    fields: Mapping[str, str]
    ticked: Mapping[str, Sequence[str]]
    enabled: bool = True
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def others(self) -> str:
        """Problems that belong to no field; empty for none."""
        return self.problems.get("", "")

    @property
    def seen(self) -> datetime | None:
        """Time of the last change of the agent shown in the form."""
        return parse_datetime(self.fields.get("updated_at", "")[:40])


def form_of(document: AgentDocument | None, agent: Agent | None = None) -> AgentForm:
    """Return the form of an agent, or a blank form for a new one."""
    if document is None:
        blank = {"max_level": "cautious", "strategy": "react", "rounds": "10"}
        return AgentForm(blank, dict.fromkeys(LISTS, ()))
    budget = document.budget.model_dump()
    fields = {"name": document.name, "instructions": document.instructions, "model": document.model}
    fields |= {"max_level": str(document.tools.max_level), "strategy": str(document.strategy)}
    fields |= {name: "" if budget[name] is None else f"{budget[name]}" for name in LIMITS}
    fields["updated_at"] = agent.updated_at.isoformat() if agent else ""
    ticked = {"names": document.tools.names, "categories": document.tools.categories, "groups": document.groups}
    return AgentForm(fields, ticked, document.enabled)


def read_form(sent: QueryDict) -> AgentForm:
    """Parse a submitted form."""
    fields = {name: sent.get(name, "").replace("\r\n", "\n").strip() for name in TEXTS}
    return AgentForm(fields, {name: sent.getlist(name) for name in LISTS}, "enabled" in sent)


def body_in(form: AgentForm, *, is_new: bool) -> dict[str, Any]:
    """Return the agent in the form as a body for the REST API."""
    fields, ticked = form.fields, form.ticked
    tools = {"names": ticked["names"], "categories": ticked["categories"], "max_level": fields["max_level"]}
    body: dict[str, Any] = {name: fields[name] for name in ("instructions", "model", "strategy")}
    body |= {"tools": tools, "groups": ticked["groups"], "enabled": form.enabled}
    body["budget"] = {name: _number(fields[name], name) for name in LIMITS}
    return {"name": fields["name"], **body} if is_new else body


def filter_in(form: AgentForm) -> ToolFilter:
    """Return the tool filter in the form, ignoring invalid parts."""
    level = form.fields["max_level"]
    names, categories = ([each[:64] for each in form.ticked[name] if each][:200] for name in ("names", "categories"))
    known = {"max_level": level} if level in ("safe", "cautious", "dangerous") else {}
    return ToolFilter.model_validate({"names": names, "categories": categories, **known})


def with_errors(form: AgentForm, error: ParameterError) -> AgentForm:
    """Return the form with the problems of an error at their fields."""
    problems: dict[str, str] = {}
    for each in error.details.get("errors", ()):
        name = _field_for_path(each["path"])
        problems[name] = " ".join(filter(None, (problems.get(name), each["message"])))
    return replace(form, problems=problems or {"": error.message})


def _field_for_path(path: str) -> str:
    """Return the field that displays a problem of the body."""
    first, _, rest = path.partition(".")
    name = rest.partition(".")[0] if first in ("tools", "budget") else first
    return name if name in {*TEXTS, *LISTS} else ""


def _number(text: str, name: str) -> int | str | None:
    """Return a limit as a number; other text is returned unchanged for validation to reject."""
    if not text:
        return None
    is_whole = name != "cost" and text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_whole else text
