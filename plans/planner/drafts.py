"""Drafts: a request in words, what the planner made of it, and the plan that people start from it.

A draft is a call of the tool `draft_plan`, and is addressed by that call's id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.models import Call
from plans.models import Plan
from plans.planner.output import PlannerOutput
from plans.services import Requester

TOOL = "draft_plan"


@dataclass(frozen=True, slots=True)
class Drafted:
    """What came of a request; `document` is None where no plan could be made. Problems are as REST shows them."""

    output: PlannerOutput
    document: Mapping[str, Any] | None
    problems: Sequence[Mapping[str, Any]] = ()
    model: str = ""
    tokens: int = 0
    request: str = ""
    strategy: str = ""
    rounds: int = field(default=1)


def ask(request: str, strategy: str | None, *, by: Requester) -> Call:
    """Ask the planner: store the call that drafts, and let it start. Raises NotConfigured and what calls raise."""
    raise NotImplementedError


def drafted(call: Call) -> Drafted | None:
    """Return what a call drafted; None while it runs, and when it failed."""
    raise NotImplementedError


def start(call: Call, *, by: Requester, document: Mapping[str, Any] | None = None) -> Plan:
    """Store the drafted plan, or what people made of it, and start it unless it says otherwise.

    Raises Conflict where there is no plan yet or it was started as it is already, and PlanProblems.
    """
    raise NotImplementedError
