"""The socket of a session's page: its list and its calls as they change, drawn once for everyone who looks."""

from collections.abc import Sequence

from django.template.loader import render_to_string

from plans.fragments import shell_subject
from plans.live.event_sockets import enter_plan, plan_ref_of
from plans.live.feed import Feed
from plans.live.fragment_cache import Drawn, Subject
from plans.live.sockets import Visitor
from plans.models import Plan
from plans.page_sockets import PageSocket
from plans.sessions.lists import NEWEST_CALLS, SessionKey, plans_besides_lists
from plans.sessions.overview import page_of_session

RESTS = 0.5
"""Seconds: a session is drawn at most twice a second."""
PARTS = ("standing", "list", "calls")
Mark = Sequence[tuple[int, int]]


def session_subject(plan: Plan) -> Subject:
    """The session in which a plan was stored, the same for everyone who may see it, whichever plan leads to it.

    Its calls are plans of their own, made while one looks, so any plan rings for it.
    """
    key = SessionKey.of_plan(plan)
    return Subject(("session", key), Drawing(plan, key), Feed.listen_to_all, RESTS)


class Drawing:
    """A session as it is drawn: anew only when something has happened to a plan that it shows."""

    def __init__(self, plan: Plan, key: SessionKey) -> None:
        self._plan = plan
        self._key = key
        self._mark: Mark | None = None
        self._drawn = Drawn({})

    def __call__(self) -> Drawn:
        """Return how it looks now; two short queries where that is as before."""
        mark = self._mark_now()
        if mark != self._mark:
            self._drawn = self._draw()
            self._mark = mark  # read before it was drawn: what happened meanwhile is drawn next time
        return self._drawn

    def _mark_now(self) -> Mark:
        """Return what changes with everything that is shown: its plans, and how far the history of each has come."""
        row = self._key.current_list()
        shown = plans_besides_lists(self._key).values_list("pk", "last_seq")[:NEWEST_CALLS]
        return [*([(row.pk, row.last_seq)] if row else []), *shown]

    def _draw(self) -> Drawn:
        page = page_of_session(self._plan)
        fragments = {part: render_to_string(f"plans/_session_{part}.html", {"page": page}) for part in PARTS}
        return Drawn(fragments, says=f"{page.done} of {len(page.steps)} steps done")


class SessionSocket(PageSocket):
    """`/ws/pages/sessions/{id}/`: the session in which that plan was stored."""

    _session: Subject | None = None

    def enter(self) -> Visitor:
        """Let in who has signed in and may see the plan."""
        visitor = enter_plan(self.scope, None)
        if self._session is None:
            plans = Plan.objects.select_related("author", "token")
            self._session = session_subject(plans.get(public_id=plan_ref_of(self.scope)))
        return visitor

    def subjects(self, visitor: Visitor) -> Sequence[Subject]:
        """Return the session beside what is on every page."""
        return [*filter(None, [self._session]), shell_subject(visitor)]
