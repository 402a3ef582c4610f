"""The socket of a session's page: its list and its calls as they change, drawn once for everyone who looks."""

from collections.abc import Sequence
from functools import partial

from django.template.loader import render_to_string

from plans.boards import Drawn, Subject
from plans.consumers import enter_plan, plan_ref_of
from plans.door import Visitor
from plans.feed import Feed
from plans.fragments import shell_subject
from plans.models import Plan
from plans.page_sockets import PageSocket
from plans.session_page import page_of_session

RESTS = 0.5
"""Seconds: a session is drawn at most twice a second."""
PARTS = ("standing", "list", "calls")


def session_subject(plan_ref: str) -> Subject:
    """One session, the same for everyone who may see it. Its calls are plans of their own, so any plan rings for it."""
    return Subject(("session", plan_ref), partial(_draw, plan_ref), Feed.listen_to_all, RESTS)


def _draw(plan_ref: str) -> Drawn:
    plan = Plan.objects.select_related("author", "token").get(public_id=plan_ref)
    page = page_of_session(plan)
    fragments = {part: render_to_string(f"plans/_session_{part}.html", {"page": page}) for part in PARTS}
    return Drawn(fragments, says=f"{page.done} of {len(page.steps)} steps done")


class SessionSocket(PageSocket):
    """`/ws/pages/sessions/{id}/`: the session in which that plan was stored."""

    def enter(self) -> Visitor:
        """Let in who has signed in and may see the plan."""
        return enter_plan(self.scope, None)

    def subjects(self, visitor: Visitor) -> Sequence[Subject]:
        """Return the session beside what is on every page."""
        return [session_subject(plan_ref_of(self.scope)), shell_subject(visitor)]
