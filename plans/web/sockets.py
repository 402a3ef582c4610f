"""The sockets of the pages: HTML fragments for people who have signed in. Nobody else relies on their shape."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack

from django.template.loader import render_to_string

from approvals.queue.saved_views import OPEN_VIEWS, WAITING
from approvals.requests.queries import requests_audited_since
from catalog.calls.privacy import can_see_private
from plans.live import sockets
from plans.live.approval_changes import CHANGED, Change, ChangeBatch, request_changes
from plans.live.event_sockets import authorize_plan, plan_ref_of, visible_changes
from plans.live.feed import Feed
from plans.live.fragment_cache import Fragments, RenderSource, ViewerState, shared_rendering
from plans.live.sockets import Socket, SocketRefused, SocketUser, until_one_ends
from plans.live.streaming import OutputSubscription
from plans.models import Plan
from plans.sessions.lists import NEWEST_CALLS, SessionKey, plans_outside_lists
from plans.sessions.overview import session_overview
from plans.store.privacy import can_see_private_in_plan
from plans.web.fragments import (
    inbox_source,
    model_output_fragment,
    plan_source,
    plans_source,
    remove_closed_request,
    request_refresh_trigger,
    shell_source,
    views_source,
)


class PageSocket(Socket):
    """Keeps a page up to date with the boards that it shows."""

    def enter(self) -> SocketUser:
        """Let in who has signed in: tokens have no pages."""
        return sockets.authenticate_socket(self.scope["headers"], None)

    @abstractmethod
    def subjects(self, visitor: SocketUser) -> Sequence[RenderSource]:
        """Return what the page shows."""

    async def tell(self, visitor: SocketUser) -> None:
        """Send what has changed, for ever; numbered boards begin after the number that the page was drawn at."""
        after = self.drawn_at()
        await self.accept()
        bell = asyncio.Event()
        with ExitStack() as looks:
            boards = [looks.enter_context(shared_rendering(self.feed, each, bell)) for each in self.subjects(visitor)]
            views = [ViewerState(board, after) for board in boards]
            while True:
                await bell.wait()
                bell.clear()
                for message in filter(None, [view.news() for view in views]):
                    await self.say(message)

    def drawn_at(self) -> int | None:
        """Return the number that the page was drawn at, None for one without. Raises SocketRefused for what is none."""
        return sockets.parse_after(self.scope["query_string"]) if self.scope["query_string"] else None


class ShellSocket(PageSocket):
    """`/ws/pages/shell/`: what is on every page."""

    def subjects(self, visitor: SocketUser) -> Sequence[RenderSource]:
        """Return the counts and the running plans."""
        return [shell_source(visitor)]


class InboxSocket(PageSocket):
    """`/ws/pages/inbox/`, `/ws/pages/inbox/{view}/`: the requests that wait, in one of the saved views.

    What was answered leaves at once; the list that is drawn without it follows. The request that the page shows was
    drawn at a number of the audit log: what is told after it is news to the page, however long it was away.
    """

    _sees_private = False

    def enter(self) -> SocketUser:
        """Let in who has signed in; who no longer sees private data connects again, to a list without it."""
        visitor = super().enter()
        saw, self._sees_private = self._sees_private, can_see_private(visitor.user)
        if saw and not self._sees_private:
            raise SocketRefused(sockets.TRY_AGAIN, "Your roles have changed; connect again.")
        return visitor

    def subjects(self, visitor: SocketUser) -> Sequence[RenderSource]:
        """Return the list and the counts of the views beside what is on every page."""
        named = str(self.scope["url_route"]["kwargs"].get("view", WAITING))
        view = named if named in OPEN_VIEWS else WAITING
        return [inbox_source(visitor, view), views_source(visitor, view), shell_source(visitor)]

    async def tell(self, visitor: SocketUser) -> None:
        """Tell also of each request that changes: the page that shows it looks at it again."""
        after = self.drawn_at()
        async with request_changes(self.feed).follow() as queue:
            await self.accept()
            if after is not None and (missed := await self.feed.run(_missed_changes, visitor, after)):
                await self.say({"fragments": missed})
            await until_one_ends(super().tell(visitor), self._tell_changes(visitor, queue))

    async def _tell_changes(self, visitor: SocketUser, queue: asyncio.Queue[ChangeBatch]) -> None:
        while True:
            found = await queue.get()
            seen = found if visitor.sees_all else await self.feed.run(visible_changes, found, visitor)
            for change in seen.changes:
                await self.say({"fragments": [*remove_closed_request(change), request_refresh_trigger(change)]})


def _missed_changes(visitor: SocketUser, after: int) -> list[str]:
    """Return what makes a page look again at what was told of since its number."""
    told_of = requests_audited_since(visitor.user, after).values_list("public_id", "status")
    return [request_refresh_trigger(Change(CHANGED, *each)) for each in told_of]


class PlansSocket(PageSocket):
    """`/ws/pages/plans/`: the list of plans."""

    def subjects(self, visitor: SocketUser) -> Sequence[RenderSource]:
        """Return the rows beside what is on every page."""
        return [plans_source(visitor), shell_source(visitor)]


class PlanSocket(PageSocket):
    """`/ws/pages/plans/{id}/?after=SEQ`: one plan, and what its agents' models say while they are still speaking."""

    _can_see_private_parts = False
    """Judged whenever the visitor is: when they come, and again each few seconds (`Socket.recheck_access`)."""

    def enter(self) -> SocketUser:
        """Let in who has signed in and may see the plan."""
        visitor = authorize_plan(self.scope, None)
        plan = Plan.objects.select_related("token").get(public_id=plan_ref_of(self.scope))
        self._can_see_private_parts = can_see_private_in_plan(visitor.user, plan)
        return visitor

    def subjects(self, visitor: SocketUser) -> Sequence[RenderSource]:
        """Return the plan beside what is on every page."""
        return [plan_source(plan_ref_of(self.scope)), shell_source(visitor)]

    async def tell(self, visitor: SocketUser) -> None:
        """Tell also what models are saying, as long as the visitor sees the private values of the plan."""
        await self.accept()  # what is still being said is told at once
        with self.feed.model_output.listen(plan_ref_of(self.scope)) as ear:
            await until_one_ends(super().tell(visitor), self._send_model_output(ear))

    async def _send_model_output(self, ear: OutputSubscription) -> None:
        while True:
            said = await ear.news()
            if self._can_see_private_parts:
                await self.say({"fragments": [model_output_fragment(number, text) for number, text in said.items()]})


SESSION_REST_SECONDS = 0.5
"""Seconds: a session is drawn at most twice a second."""
PARTS = ("standing", "list", "calls")
SessionMark = Sequence[tuple[int, int]]


def session_source(plan: Plan) -> RenderSource:
    """The session in which a plan was stored, the same for everyone who may see it, whichever plan leads to it.

    Its calls are plans of their own, made while one looks, so any plan rings for it.
    """
    key = SessionKey.of_plan(plan)
    return RenderSource(("session", key), SessionRenderer(plan, key), Feed.listen_to_all, SESSION_REST_SECONDS)


class SessionRenderer:
    """A session as it is drawn: anew only when something has happened to a plan that it shows."""

    def __init__(self, plan: Plan, key: SessionKey) -> None:
        self._plan = plan
        self._key = key
        self._mark: SessionMark | None = None
        self._drawn = Fragments({})

    def __call__(self) -> Fragments:
        """Return how it looks now; two short queries where that is as before."""
        mark = self._mark_now()
        if mark != self._mark:
            self._drawn = self._draw()
            self._mark = mark  # read before it was drawn: what happened meanwhile is drawn next time
        return self._drawn

    def _mark_now(self) -> SessionMark:
        """Return what changes with everything that is shown: its plans, and how far the history of each has come."""
        row = self._key.current_list()
        shown = plans_outside_lists(self._key).values_list("pk", "last_seq")[:NEWEST_CALLS]
        return [*([(row.pk, row.last_seq)] if row else []), *shown]

    def _draw(self) -> Fragments:
        page = session_overview(self._plan)
        fragments = {part: render_to_string(f"plans/_session_{part}.html", {"page": page}) for part in PARTS}
        return Fragments(fragments, says=f"{page.done} of {len(page.steps)} steps done")


class SessionSocket(PageSocket):
    """`/ws/pages/sessions/{id}/`: the session in which that plan was stored."""

    _session: RenderSource | None = None

    def enter(self) -> SocketUser:
        """Let in who has signed in and may see the plan."""
        visitor = authorize_plan(self.scope, None)
        if self._session is None:
            plans = Plan.objects.select_related("author", "token")
            self._session = session_source(plans.get(public_id=plan_ref_of(self.scope)))
        return visitor

    def subjects(self, visitor: SocketUser) -> Sequence[RenderSource]:
        """Return the session beside what is on every page."""
        return [*filter(None, [self._session]), shell_source(visitor)]
