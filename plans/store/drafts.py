"""Drafts of plans that a viewer may see and change."""

import json

from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from catalog.access.roles import ADMINISTRATOR, OPERATOR, has_role
from catalog.calls.privacy import can_see_private
from catalog.core.canonical_json import Json
from catalog.models import Tool
from plans.documents.editing import steps_of
from plans.models import PlanDraft

TEXTS = ("sealed", "sealed_proposal", "sealed_unread")


def drafts_of(owner: User) -> QuerySet[PlanDraft]:
    """Return a person's drafts that are neither started nor deleted, the last changed first, without their texts."""
    mine = PlanDraft.objects.filter(owner=owner, plan=None, deleted_at=None).order_by("-updated_at", "-id")
    return mine.defer(*TEXTS).select_related("updated_by")


def draft_for(viewer: User, public_id: str, *, without_texts: bool = False) -> PlanDraft:
    """Return a draft of the viewer's, or one whose link they have if they may write plans. Raises DoesNotExist.

    With `without_texts`, neither its texts nor other rows are loaded.
    """
    drafts = PlanDraft.objects.defer(*TEXTS)
    if not without_texts:
        drafts = PlanDraft.objects.select_related("owner", "updated_by", "unread_by", "call", "cloned_from", "plan")
    draft = drafts.get(public_id=public_id)
    if draft.owner_id != viewer.pk and (draft.deleted_at or not has_role(viewer, OPERATOR, ADMINISTRATOR)):
        raise PlanDraft.DoesNotExist
    return draft


def may_read(viewer: User, draft: PlanDraft, document: Json) -> bool:
    """Return whether the viewer may read a draft's document: what is private in a plan is private in a draft.

    That is what came from a planner or another plan, arguments of tools that return private data, and proposals of
    envelopes with calls of such tools.
    """
    if draft.owner_id == viewer.pk or can_see_private(viewer):
        return True
    if draft.call_id is not None or draft.cloned_from_id is not None:
        return False
    steps = [step for step in steps_of(document) if isinstance(step, dict)]
    tools = [step.get("tool") for step in steps]
    proposals = [json.dumps(step, ensure_ascii=False) for step in steps if step.get("tool") == PROPOSE_ENVELOPE]
    private = Tool.objects.filter(returns_private_data=True).values_list("name", flat=True)
    return not any(name in tools or any(f'"{name}"' in text for text in proposals) for name in private)
