"""Beginnings of drafts: empty, an example, a past plan, the planner's draft, a task for an agent, or a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404
from django.utils.translation import gettext as _

from catalog.core.canonical_json import MAX_JSON_BYTES, Json
from catalog.errors import Conflict, MalformedJSON, TooLarge
from plans.actions.clone import document_to_clone
from plans.actions.drafts import DraftSource, create_draft, keep_unread
from plans.agents.definitions import usable_by
from plans.documents.editing import EMPTY, with_goal
from plans.documents.quick_fixes import begins_like_json
from plans.models import Plan, PlanDraft
from plans.store.drafts import drafts_of
from plans.store.requesters import Requester
from plans.store.selectors import plans_for
from plans.web.access import plan_or_404
from plans.web.compose.builder import View, read_text
from plans.web.compose.draft import draft_page
from plans.web.compose.starters import STARTERS

MAX_FOUND = 8
MAX_SEARCH = 200


@dataclass(frozen=True)
class Beginnings:
    """The choices with which a new plan can begin; `search` finds past plans by their goal."""

    viewer: User
    search: str = ""

    @cached_property
    def drafts(self) -> Sequence[PlanDraft]:
        return list(drafts_of(self.viewer))

    @cached_property
    def past_plans(self) -> Sequence[Plan]:
        plans = plans_for(self.viewer).filter(kind=Plan.Kind.PLAN)
        found = plans.filter(goal__icontains=self.search) if self.search else plans.filter(author=self.viewer)
        return list(found[:MAX_FOUND])

    @cached_property
    def agents(self) -> Sequence[str]:
        return list(usable_by(self.viewer))

    @property
    def starters(self) -> Sequence[Any]:
        return list(STARTERS.values())


def begin_draft(viewer: User, fields: Mapping[str, str]) -> PlanDraft:
    """Make the draft that the fields of a form ask for, or return the one that this planner's draft already has.

    Raises Http404, and the errors of `create_draft` and `document_to_clone`.
    """
    by = Requester(viewer)
    fields = {name: value if name == "text" else value.replace("\0", "") for name, value in fields.items()}
    if fields.get("draft"):
        return _from_planner(viewer, fields["draft"])
    if fields.get("plan"):
        plan = plan_or_404(viewer, fields["plan"])
        return create_draft(_plain(document_to_clone(plan, by=by)), by=viewer, source=DraftSource(plan=plan))
    if fields.get("agent"):
        return create_draft(_task(fields["agent"], fields.get("task", "").strip()), by=viewer)
    starter = STARTERS.get(fields.get("starter", ""))
    if starter is not None:
        return create_draft(dict(starter.document), by=viewer, source=DraftSource(starter=starter.name))
    if fields.get("text", "").strip():
        return _from_text(viewer, fields["text"].replace("\r\n", "\n"))
    return create_draft(with_goal(dict(EMPTY), fields.get("goal", "").strip()), by=viewer)


def _from_planner(viewer: User, public_id: str) -> PlanDraft:
    page = draft_page(viewer, public_id)
    if not page.is_own:
        raise Http404
    if page.plan is not None or page.drafted is None or page.drafted.document is None:
        raise Conflict(_("This draft has no plan that could be edited: it was started already, or it failed."))
    known = drafts_of(viewer).filter(call=page.call).first()
    source = DraftSource(call=page.call, is_proposal=True)
    return known or create_draft(dict(page.drafted.document), by=viewer, source=source)


def _from_text(viewer: User, text: str) -> PlanDraft:
    """Make a draft of a text; one that cannot be read becomes the unread text of an empty draft."""
    view: View = "json" if begins_like_json(text) else "yaml"
    try:
        return create_draft(read_text(text, view), by=viewer)
    except MalformedJSON:
        if len(text.encode(errors="surrogatepass")) > MAX_JSON_BYTES:
            raise TooLarge(_("The text"), size=len(text), limit=MAX_JSON_BYTES) from None
        draft = create_draft(dict(EMPTY), by=viewer)
        keep_unread(draft, text, PlanDraft.Format(view), by=viewer)
        return draft


def _plain(document: Mapping[str, Any]) -> Json:
    """Return a cloned document without what equals a plan's defaults."""
    defaults: Mapping[str, Any] = {"owner": "agent", "can_modify": True, "deadline_seconds": None, "budget": None}
    return {
        name: value
        for name, value in document.items()
        if not (name in defaults and value == defaults[name]) and not (name == "memory" and not value)
    }


def _task(agent: str, task: str) -> Json:
    kept = {"expected_key": "answer", "output_path": ["results", "0"]}
    return {"goal": task, "steps": [{"step_id": 1, "description": task, "agent": agent, **kept}]}
