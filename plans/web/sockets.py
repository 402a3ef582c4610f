"""The sockets of the pages: HTML fragments for people who have signed in. Nobody else relies on their shape."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack

from django.template.loader import render_to_string

from approvals.queue.saved_views import OPEN_VIEWS, WAITING
from approvals.requests.queries import requests_told_of_since
from catalog.calls.privacy import sees_private
from plans.live import sockets
from plans.live.approval_changes import CHANGED, Change, Changes, request_changes
from plans.live.event_sockets import enter_plan, own_part, plan_ref_of
from plans.live.feed import Feed
from plans.live.fragment_cache import Drawn, Subject, View, looking_at
from plans.live.sockets import Socket, TurnedAway, Visitor, until_one_ends
from plans.live.streaming import Ear
from plans.models import Plan
from plans.sessions.lists import NEWEST_CALLS, SessionKey, plans_besides_lists
from plans.sessions.overview import page_of_session
from plans.store.privacy import sees_through
from plans.web.fragments import (
    agent_text,
    gone_from_lists,
    inbox_subject,
    look_at_request,
    plan_subject,
    plans_subject,
    shell_subject,
    views_subject,
)


class PageSocket(Socket):
    """Keeps a page up to date with the boards that it shows."""

    def enter(self) -> Visitor:
        """Let in who has signed in: tokens have no pages."""
        return sockets.admit(self.scope["headers"], None)

    @abstractmethod
    def subjects(self, visitor: Visitor) -> Sequence[Subject]:
        """Return what the page shows."""

    async def tell(self, visitor: Visitor) -> None:
        """Send what has changed, for ever; numbered boards begin after the number that the page was drawn at."""
        after = self.drawn_at()
        await self.accept()
        bell = asyncio.Event()
        with ExitStack() as looks:
            boards = [looks.enter_context(looking_at(self.feed, each, bell)) for each in self.subjects(visitor)]
            views = [View(board, after) for board in boards]
            while True:
                await bell.wait()
                bell.clear()
                for message in filter(None, [view.news() for view in views]):
                    await self.say(message)

    def drawn_at(self) -> int | None:
        """Return the number that the page was drawn at, None for one without. Raises TurnedAway for what is none."""
        return sockets.read_after(self.scope["query_string"]) if self.scope["query_string"] else None


class ShellSocket(PageSocket):
    """`/ws/pages/shell/`: what is on every page."""

    def subjects(self, visitor: Visitor) -> Sequence[Subject]:
        """Return the counts and the running plans."""
        return [shell_subject(visitor)]


class InboxSocket(PageSocket):
    """`/ws/pages/inbox/`, `/ws/pages/inbox/{view}/`: the requests that wait, in one of the saved views.

    What was answered leaves at once; the list that is drawn without it follows. The request that the page shows was
    drawn at a number of the audit log: what is told after it is news to the page, however long it was away.
    """

    _sees_private = False

    def enter(self) -> Visitor:
        """Let in who has signed in; who no longer sees private data connects again, to a list without it."""
        visitor = super().enter()
        saw, self._sees_private = self._sees_private, sees_private(visitor.user)
        if saw and not self._sees_private:
            raise TurnedAway(sockets.TRY_AGAIN, "Your roles have changed; connect again.")
        return visitor

    def subjects(self, visitor: Visitor) -> Sequence[Subject]:
        """Return the list and the counts of the views beside what is on every page."""
        named = str(self.scope["url_route"]["kwargs"].get("view", WAITING))
        view = named if named in OPEN_VIEWS else WAITING
        return [inbox_subject(visitor, view), views_subject(visitor, view), shell_subject(visitor)]

    async def tell(self, visitor: Visitor) -> None:
        """Tell also of each request that changes: the page that shows it looks at it again."""
        after = self.drawn_at()
        async with request_changes(self.feed).follow() as queue:
            await self.accept()
            if after is not None and (missed := await self.feed.run(_missed, visitor, after)):
                await self.say({"fragments": missed})
            await until_one_ends(super().tell(visitor), self._tell_changes(visitor, queue))

    async def _tell_changes(self, visitor: Visitor, queue: asyncio.Queue[Changes]) -> None:
        while True:
            found = await queue.get()
            seen = found if visitor.sees_all else await self.feed.run(own_part, found, visitor)
            for change in seen.changes:
                await self.say({"fragments": [*gone_from_lists(change), look_at_request(change)]})


def _missed(visitor: Visitor, after: int) -> list[str]:
    """Return what makes a page look again at what was told of since its number."""
    told_of = requests_told_of_since(visitor.user, after).values_list("public_id", "status")
    return [look_at_request(Change(CHANGED, *each)) for each in told_of]


class PlansSocket(PageSocket):
    """`/ws/pages/plans/`: the list of plans."""

    def subjects(self, visitor: Visitor) -> Sequence[Subject]:
        """Return the rows beside what is on every page."""
        return [plans_subject(visitor), shell_subject(visitor)]


class PlanSocket(PageSocket):
    """`/ws/pages/plans/{id}/?after=SEQ`: one plan, and what its agents' models say while they are still speaking."""

    _sees_through = False
    """Judged whenever the visitor is: when they come, and again each few seconds (`Socket.look_again`)."""

    def enter(self) -> Visitor:
        """Let in who has signed in and may see the plan."""
        visitor = enter_plan(self.scope, None)
        plan = Plan.objects.select_related("token").get(public_id=plan_ref_of(self.scope))
        self._sees_through = sees_through(visitor.user, plan)
        return visitor

    def subjects(self, visitor: Visitor) -> Sequence[Subject]:
        """Return the plan beside what is on every page."""
        return [plan_subject(plan_ref_of(self.scope)), shell_subject(visitor)]

    async def tell(self, visitor: Visitor) -> None:
        """Tell also what models are saying, as long as the visitor sees the private values of the plan."""
        await self.accept()  # what is still being said is told at once
        with self.feed.voices.listen(plan_ref_of(self.scope)) as ear:
            await until_one_ends(super().tell(visitor), self._tell_voices(ear))

    async def _tell_voices(self, ear: Ear) -> None:
        while True:
            said = await ear.news()
            if self._sees_through:
                await self.say({"fragments": [agent_text(number, text) for number, text in said.items()]})


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
