"""Cloning: store the document of a plan as a new plan of the person who clones it.

Steps that the planner added after an answer are left out: the clone asks its question again and plans on from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q
from pydantic import ValidationError

from catalog.access.roles import NotAllowed
from catalog.models import ApiToken
from plans.actions.create import PlanProblems, check_document, create_plan
from plans.models import Plan
from plans.spec import PlanDocument
from plans.store.plan_documents import Document, initial_memory, step_documents
from plans.store.privacy import can_see_private_in_plan, hidden_parts, is_owner
from plans.store.requesters import Requester
from plans.store.selectors import plans_for

MOST_CLONES = 50


def clone_plan(plan: Plan, *, by: Requester, start: bool = False) -> Plan:
    """Store a copy of the plan: its current steps as they were submitted, and its initial memory.

    Raises NotAllowed if `by` may not see all of the plan, and PlanProblems if it could not be submitted today.
    """
    document = document_to_clone(plan, by=by)
    try:
        checked = PlanDocument.model_validate({**document, "start": start})
    except ValidationError:
        raise PlanProblems([each for each in check_document(document, by=by) if each.severity == "error"]) from None
    words = plan.request if can_see_private_in_plan(by.user, plan) else ""
    return create_plan(checked, by=by, original_plan=plan, origin=_CloneOrigin(words) if words else None)


def document_to_clone(plan: Plan, *, by: Requester) -> Document:
    """Return the plan as a document of `by`, with secrets if they are its owner's. Raises NotAllowed as above."""
    document = cloned_document(plan, opened=is_owner(by.user, plan))
    hidden = hidden_parts(by.user, plan)
    written = {each["step_id"] for each in document["steps"]}
    is_private = any(each.everything for number, each in hidden.steps.items() if number in written)
    if is_private or hidden.keys & set(document["memory"]):
        raise NotAllowed(
            "This plan holds private values. Only its owner, reviewers and administrators can see them and clone it."
        )
    return document


@dataclass(frozen=True, slots=True)
class _CloneOrigin:
    request: str

    def become(self, plan: Plan) -> None:
        """Do nothing: the records of model use stay with the original plan."""


def cloned_document(plan: Plan, *, opened: bool = False) -> Document:
    """Return the plan as a document for submission, without steps added by its planner; a deadline becomes a duration.

    `opened` includes secrets that are still stored. Only the plan's owner may use them in another plan.
    """
    # Arguments of direct calls were never parsed for references; they are escaped, so that a plan takes them literally.
    calls = plan.steps.filter(parameters__contains="${")
    if plan.kind != Plan.Kind.CALL:
        calls = calls.filter(Q(call__arguments=F("parameters")) | Q(retry_of__arguments=F("parameters")))
    literal = set(calls.values_list("step_id", flat=True))
    planned_anew = set(plan.steps.filter(after_answer=True).values_list("step_id", flat=True))
    documents = step_documents(plan, opened=opened)
    # Without those, the steps that need nothing else go too, and dependencies on them.
    needs = {number: set(each.get("dependencies", ())) for number, each in documents.items()}
    while more := {number for number, needed in needs.items() if needed and needed <= planned_anew} - planned_anew:
        planned_anew |= more
    for number, each in documents.items():
        if each.get("dependencies"):
            documents[number] = {
                **each,
                "dependencies": [need for need in each["dependencies"] if need not in planned_anew],
            }
    deadline_seconds = plan.deadline_seconds
    if not deadline_seconds and plan.deadline_at is not None:
        deadline_seconds = max(1, round((plan.deadline_at - plan.created_at).total_seconds()))
    steps = [
        {**each, "parameters": _escape(each.get("parameters", {}))} if number in literal else each
        for number, each in documents.items()
        if number not in planned_anew
    ]
    return {
        "goal": plan.goal,
        "steps": steps,
        "owner": plan.owner,
        "can_modify": plan.can_modify,
        "deadline_seconds": deadline_seconds,
        "budget": {"calls": plan.budget_calls, "seconds": plan.budget_seconds} if plan.has_budget else None,
        "memory": initial_memory(plan, opened=opened),
    }


def _escape(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: _escape(each) for key, each in value.items()}
    return [_escape(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class CloneLinks:
    """Public ids of a plan's original and of its clones (newest first), if the viewer may see these plans."""

    cloned_from: str | None
    clones: Sequence[str]


NO_CLONE_LINKS = CloneLinks(None, ())


def clone_links(plan: Plan, viewer: User, token: ApiToken | None = None) -> CloneLinks:
    """Return the plan's original and clones, without plans that the viewer may not see; one query."""
    near = plans_for(viewer, token).filter(Q(cloned_from=plan.pk) | Q(pk=plan.cloned_from_id))
    found = list(near.values_list("pk", "public_id")[: MOST_CLONES + 1])
    origin = next((ref for pk, ref in found if pk == plan.cloned_from_id), None)
    return CloneLinks(origin, [ref for pk, ref in found if pk != plan.cloned_from_id][:MOST_CLONES])
