"""Data of the frame around every page: user, waiting requests, running plans, stops. Loaded only if it is rendered."""

from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from approvals.audit.restore_guard import cached_fault
from approvals.queue.saved_views import Queues, needed_count
from approvals.stops.services import StopLine, stop_lines_for
from catalog.access.personal_settings import settings_of
from catalog.access.roles import ADMINISTRATOR, OPERATOR, REVIEWER, roles_of, user_display_name
from catalog.core import clock
from catalog.text.formats import current_reader
from catalog.ui.labels import name_initials
from plans.demo.bar import bar_for, people_to_sign_in_as
from plans.store.selectors import running_plans


@dataclass(frozen=True)
class PageFrame:
    """Data of the frame. `waiting` counts the requests that the user can answer; `now` sets the page's clock.

    With `restored`, administrators are warned that the database was restored from a backup. `stops` are those that
    stand.
    """

    signed_in: bool = False
    waiting: int | None = None
    running_plans: list[Any] = field(default_factory=list)
    roles: frozenset[str] = frozenset()
    can_read_audit: bool = False
    display_name: str = ""
    initials: str = ""
    now: str = ""
    undo_seconds: int = 0
    restored: str = ""
    stops: list[StopLine] = field(default_factory=list)

    @property
    def can_stop(self) -> bool:
        return not self.roles.isdisjoint({REVIEWER, ADMINISTRATOR})

    @property
    def can_plan(self) -> bool:
        return not self.roles.isdisjoint({OPERATOR, ADMINISTRATOR})


@dataclass(frozen=True, slots=True)
class KnownOnPage:
    """Data that a view has loaded for its page and set on the request, so that the frame does not load it again."""

    queues: Queues | None = None
    running_plans: list[dict[str, Any]] | None = None


NOTHING_KNOWN = KnownOnPage()


def frame_context(request: HttpRequest) -> dict[str, Any]:
    """Provide the frame's data to every template, lazily."""
    user = getattr(request, "user", AnonymousUser())
    known = KnownOnPage(getattr(request, "queues", None), getattr(request, "running_plans", None))
    return {
        "shell": SimpleLazyObject(partial(frame_for_user, user, known)),
        "demo_bar": SimpleLazyObject(partial(bar_for, request)),
        "demo_people": people_to_sign_in_as(),
        "personal": SimpleLazyObject(partial(settings_of, user)),
        "reader": current_reader(),
    }


def frame_for_user(user: User | AnonymousUser, known: KnownOnPage = NOTHING_KNOWN) -> PageFrame:
    now = f"{clock.now():%Y-%m-%dT%H:%M:%S.%fZ}"
    if not user.is_authenticated:
        return PageFrame(now=now)
    roles, name = roles_of(user), user_display_name(user)
    return PageFrame(
        signed_in=True,
        waiting=needed_count(user) if known.queues is None else known.queues.needed,
        running_plans=running_plans(user) if known.running_plans is None else known.running_plans,
        roles=roles,
        can_read_audit=ADMINISTRATOR in roles,
        display_name=name,
        initials=name_initials(name),
        now=now,
        undo_seconds=ceil(settings.TOOLGATE_UNDO_SECONDS),
        restored=cached_fault() if ADMINISTRATOR in roles else "",
        stops=stop_lines_for(user),
    )
