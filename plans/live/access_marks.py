"""Marks of the access of open sockets: values that change whenever the access of their user may have changed.

A full check of one socket takes four queries. The marks of all sockets of a feed are read together in as many, so that
hundreds of sockets are checked every few seconds at the cost of one, and in full only when their mark has changed.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import uniform
from weakref import WeakKeyDictionary

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session

from catalog.access.second_factors import with_second_factor
from catalog.core import clock
from catalog.core.transactions import log_unexpected
from plans.live.feed import Feed
from plans.models import Plan

log = logging.getLogger("toolgate.sockets")
RECHECK_SECONDS = 2.5
FULL_CHECK_SECONDS = 60.0
"""Seconds after which access is checked in full although its mark has not changed: a second line of defence."""
READ_AT_ONCE = 500


@dataclass(slots=True, eq=False)
class OpenAccess:
    """Access of one open socket: of a person in a session, to a plan if `plan_ref` names one.

    `is_due` is set whenever access must be checked. Without a session, as with a token, that is every time.
    """

    person_pk: int
    session_key: str
    plan_ref: str
    is_due: asyncio.Event = field(default_factory=asyncio.Event)
    mark: Hashable = None
    full_check_at: float = 0.0


def read_marks(accesses: Sequence[OpenAccess]) -> list[Hashable]:
    """Return the mark of each access: everything in the database on which the access of a session depends."""
    keys, refs = {each.session_key for each in accesses}, {each.plan_ref for each in accesses}
    people = {each.person_pk for each in accesses}
    live = Session.objects.filter(session_key__in=keys, expire_date__gt=clock.now())
    sessions = dict(live.values_list("session_key", "session_data"))
    rows = User.objects.filter(pk__in=people).values_list("pk", "password", "is_active", "is_superuser")
    accounts = {pk: account for pk, *account in rows}
    groups: dict[int, set[str]] = defaultdict(set)
    for pk, name in User.groups.through.objects.filter(user__in=people).values_list("user_id", "group__name"):
        groups[pk].add(name)
    factors = with_second_factor(people) if settings.TOOLGATE_SECOND_FACTOR_ROLES else frozenset()
    owners = Plan.objects.filter(public_id__in=refs).values_list("public_id", "author_id", "token_id", "token__user")
    plans = {ref: owner for ref, *owner in owners}
    return [
        (
            sessions.get(each.session_key),
            *accounts.get(each.person_pk, ()),
            frozenset(groups[each.person_pk]),
            each.person_pk in factors,
            *plans.get(each.plan_ref, ()),
        )
        for each in accesses
    ]


class AccessMarks:
    """Compares the marks of the open sockets of one feed every RECHECK_SECONDS, while there are any."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._accesses: set[OpenAccess] = set()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def follow(self, person_pk: int, session_key: str, plan_ref: str) -> Iterator[asyncio.Event]:
        """Yield an asyncio event that is set whenever this access must be checked in full; soon for the first time.

        The first mark is read after the check with which the socket was opened, so it says nothing about what changed
        in between.
        """
        access = OpenAccess(person_pk, session_key, plan_ref)
        self._accesses.add(access)
        if self._task is None:
            self._task = asyncio.ensure_future(self._compare_forever())
        try:
            yield access.is_due
        finally:
            self._accesses.discard(access)
            if not self._accesses and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _compare_forever(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            open_now = list(self._accesses)
            for begin in range(0, len(open_now), READ_AT_ONCE):
                accesses = open_now[begin : begin + READ_AT_ONCE]
                try:
                    marks = await self._feed.run_later(read_marks, accesses)
                except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
                    log.warning("the access of open sockets could not be compared; each is checked")
                    log_unexpected(error)
                    for access in accesses:
                        access.is_due.set()
                else:
                    self.compare(accesses, marks)

    def compare(self, accesses: Sequence[OpenAccess], marks: Sequence[Hashable]) -> None:
        moment = self._feed.loop.time()
        for access, mark in zip(accesses, marks, strict=True):
            if access.session_key and access.mark == mark and moment < access.full_check_at:
                continue
            access.mark = mark  # read before the check, so that a change in between is seen next time
            # Sockets that were opened together are not all checked at once.
            access.full_check_at = moment + FULL_CHECK_SECONDS * uniform(0.5, 1)  # noqa: S311 - no secret
            access.is_due.set()


_marks: WeakKeyDictionary[Feed, AccessMarks] = WeakKeyDictionary()


def access_marks(feed: Feed) -> AccessMarks:
    return _marks.setdefault(feed, AccessMarks(feed))
