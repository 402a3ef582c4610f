"""Sockets of the pages, which send HTML fragments to signed-in users. Their format is internal."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from approvals.queue.saved_views import OPEN_VIEWS, WAITING
from approvals.requests.queries import requests_audited_since
from catalog.access.personal_settings import formats_of
from catalog.calls.privacy import can_see_private
from catalog.text.formats import ReaderFormats, written_for
from plans.live import sockets
from plans.live.approval_changes import CHANGED, Change, ChangeBatch, request_changes
from plans.live.event_sockets import authorize_plan, plan_ref_of, visible_changes
from plans.live.feed import Feed
from plans.live.fragment_cache import Fragments, RenderSource, ViewerState, shared_rendering
from plans.live.sockets import Socket, SocketRefused, SocketUser
from plans.live.streaming import OutputSubscription
from plans.live.waits import until_one_ends
from plans.models import Plan
from plans.sessions.lists import NEWEST_CALLS, SessionKey, plans_outside_lists
from plans.sessions.overview import session_overview
from plans.store.privacy import can_see_private_in_plan
from plans.web.fragments import (
    figures_source,
    home_source,
    inbox_source,
    model_output_fragment,
    plan_source,
    plans_source,
    remove_closed_request,
    request_refresh_trigger,
    shell_source,
    views_source,
)
from plans.web.graph import fold_named


def source_for(reader: ReaderFormats, source: RenderSource) -> RenderSource:
    """Return a source for the readers with these formats, who share its rendering."""

    def draw() -> Fragments:
        with written_for(reader):
            return source.draw()

    return replace(source, key=(source.key, reader), draw=draw)


class PageSocket(Socket):
    """Socket that keeps a page up to date with the render sources it shows."""

    def enter(self) -> SocketUser:
        """Authenticate the session; tokens are not accepted."""
        return sockets.authenticate_socket(self.scope["headers"], None)

    @abstractmethod
    def subjects(self, user: SocketUser) -> Sequence[RenderSource]:
        """Return the render sources of the page."""

    async def tell(self, user: SocketUser) -> None:
        """Send changes until the socket closes. Sources with event numbers begin after the event number of the page."""
        after = self.drawn_at()
        await self.accept()
        changed = asyncio.Event()
        reader = formats_of(user.user)  # read with the person when the socket was opened
        with ExitStack() as stack:
            renderings = [
                stack.enter_context(shared_rendering(self.feed, source_for(reader, each), changed))
                for each in self.subjects(user)
            ]
            views = [ViewerState(rendering, after) for rendering in renderings]
            while True:
                await changed.wait()
                changed.clear()
                for message in filter(None, [view.news() for view in views]):
                    await self.send_text(message)

    def drawn_at(self) -> int | None:
        """Return the event number at which the page was rendered, or None. Raises SocketRefused if it is invalid."""
        return sockets.parse_after(self.scope["query_string"]) if self.scope["query_string"] else None


class ShellSocket(PageSocket):
    """`/ws/pages/shell/`: content on every page."""

    def subjects(self, user: SocketUser) -> Sequence[RenderSource]:
        return [shell_source(user)]


class InboxSocket(PageSocket):
    """`/ws/pages/inbox/`, `/ws/pages/inbox/{view}/`: pending requests in one of the saved views.

    A decided request is removed at once; the new list follows. A request's page sends the number of the last audit
    entry that it shows, so that it gets every later change, however long it was disconnected.
    """

    path = "/approvals/"
    """Path of the page."""
    _sees_private = False

    def enter(self) -> SocketUser:
        """Authenticate. Users who lost access to private data are refused once; their page reconnects without it."""
        visitor = super().enter()
        could_see, self._sees_private = self._sees_private, can_see_private(visitor.user)
        if could_see and not self._sees_private:
            raise SocketRefused(sockets.TRY_AGAIN, "Your roles have changed. Connect again.")
        return visitor

    def subjects(self, user: SocketUser) -> Sequence[RenderSource]:
        named = str(self.scope["url_route"]["kwargs"].get("view", WAITING))
        view = named if named in OPEN_VIEWS else WAITING
        return [inbox_source(user, view), views_source(user, view), shell_source(user)]

    async def tell(self, user: SocketUser) -> None:
        """Also send a refresh trigger for each changed request."""
        after = self.drawn_at()
        async with request_changes(self.feed).follow() as queue:
            await self.accept()
            if after is not None and (missed := await self.feed.run(_missed_changes, user, after, self.path)):
                await self.say({"fragments": missed})
            await until_one_ends(super().tell(user), self._tell_changes(user, queue))

    async def _tell_changes(self, user: SocketUser, change_queue: asyncio.Queue[ChangeBatch]) -> None:
        while True:
            found = await change_queue.get()
            seen = found if user.sees_all else await self.feed.run(visible_changes, found, user)
            for change in seen.changes:
                await self.say(
                    {"fragments": [*remove_closed_request(change), request_refresh_trigger(change, self.path)]}
                )


class HomeSocket(InboxSocket):
    """`/ws/pages/home/`: the home page."""

    path = "/"

    def subjects(self, user: SocketUser) -> Sequence[RenderSource]:
        return [home_source(user), figures_source(user), shell_source(user)]


def _missed_changes(user: SocketUser, after: int, path: str) -> list[str]:
    """Return refresh triggers, for the page at `path`, for requests that changed after this number of the audit log."""
    audited = requests_audited_since(user.user, after).values_list("public_id", "status")
    return [request_refresh_trigger(Change(CHANGED, *each), path) for each in audited]


class PlansSocket(PageSocket):
    """`/ws/pages/plans/`: the list of plans."""

    def subjects(self, user: SocketUser) -> Sequence[RenderSource]:
        return [plans_source(user), shell_source(user)]


class PlanSocket(PageSocket):
    """`/ws/pages/plans/{id}/?after=SEQ`, `/ws/pages/plans/{id}/{fold}/`: one plan, its graph folded like that.

    It also sends the streamed text of the models of its agents.
    """

    _can_see_private_parts = False
    """Updated with each access check: on connect, and within seconds of a change (`Socket.recheck_access`)."""

    def enter(self) -> SocketUser:
        visitor, plan = authorize_plan(self.scope, None)
        self._can_see_private_parts = can_see_private_in_plan(visitor.user, plan)
        return visitor

    def subjects(self, user: SocketUser) -> Sequence[RenderSource]:
        fold = fold_named(str(self.scope["url_route"]["kwargs"].get("fold", "")))
        return [plan_source(plan_ref_of(self.scope), fold), shell_source(user)]

    async def tell(self, user: SocketUser) -> None:
        """Also send streamed text of models while the visitor may see private values of the plan."""
        await self.accept()  # text streamed so far is sent at once
        with self.feed.model_output.listen(plan_ref_of(self.scope)) as subscription:
            await until_one_ends(super().tell(user), self._send_model_output(subscription))

    async def _send_model_output(self, subscription: OutputSubscription) -> None:
        while True:
            said = await subscription.news()
            if self._can_see_private_parts:
                await self.say({"fragments": [model_output_fragment(number, text) for number, text in said.items()]})


SESSION_REST_SECONDS = 0.5
"""Minimum seconds between renderings of a session."""
PARTS = ("standing", "list", "calls")
SessionMark = Sequence[tuple[int, int]]


def session_source(plan: Plan) -> RenderSource:
    """Return the source of the session of a plan, shared by everyone who may see it, whichever plan they opened.

    Calls in the session are plans of their own that may be created at any time, so a change of any plan triggers this
    source.
    """
    key = SessionKey.of_plan(plan)
    return RenderSource(("session", key), SessionRenderer(plan, key), Feed.listen_to_all, SESSION_REST_SECONDS)


class SessionRenderer:
    """Renders a session, only when one of its plans has changed."""

    def __init__(self, plan: Plan, key: SessionKey) -> None:
        self._plan = plan
        self._key = key
        self._mark: SessionMark | None = None
        self._drawn = Fragments({})

    def __call__(self) -> Fragments:
        """Return the current fragments; two short queries if nothing changed."""
        row = self._key.current_list()
        shown = plans_outside_lists(self._key).values_list("pk", "last_seq")[:NEWEST_CALLS]
        # Changes whenever the content does: the displayed plans with their last event numbers.
        mark: SessionMark = [*([(row.pk, row.last_seq)] if row else []), *shown]
        if mark != self._mark:
            page = session_overview(self._plan)
            fragments = {part: render_to_string(f"plans/_session_{part}.html", {"page": page}) for part in PARTS}
            done = _("%(done)s of %(total)s steps done") % {"done": page.done, "total": len(page.steps)}
            self._drawn = Fragments(fragments, says=done)
            self._mark = mark  # read before rendering, so a change in between is rendered next time
        return self._drawn


class SessionSocket(PageSocket):
    """`/ws/pages/sessions/{id}/`: the session of that plan."""

    _session: RenderSource | None = None

    def enter(self) -> SocketUser:
        visitor, plan = authorize_plan(self.scope, None)
        if self._session is None:
            self._session = session_source(plan)
        return visitor

    def subjects(self, user: SocketUser) -> Sequence[RenderSource]:
        return [*filter(None, [self._session]), shell_source(user)]
