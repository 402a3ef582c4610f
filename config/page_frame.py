"""What the frame around every page shows: who is signed in, what waits, what runs. Asked only when drawn."""

from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from approvals.audit.restore_guard import last_fault
from approvals.queue.saved_views import needed_count
from catalog.access.roles import ADMINISTRATOR, OPERATOR, name_of, roles_of
from catalog.core import clock
from catalog.ui.labels import say_initials
from plans.store.selectors import running_plans


@dataclass(frozen=True)
class Shell:
    """The frame's facts. `waiting` counts the requests that the person can answer; `now` sets the page's clock.

    `restored` says to administrators that the database was set back.
    """

    signed_in: bool = False
    waiting: int | None = None
    running_plans: list[Any] = field(default_factory=list)
    roles: frozenset[str] = frozenset()
    reads_audit: bool = False
    display_name: str = ""
    initials: str = ""
    now: str = ""
    undo_seconds: int = 0
    restored: str = ""

    @property
    def may_plan(self) -> bool:
        """Whether the person may ask for plans, and write them."""
        return not self.roles.isdisjoint({OPERATOR, ADMINISTRATOR})


def shell(request: HttpRequest) -> dict[str, Any]:
    """Give every template the frame's facts, at no cost to those that draw no frame."""
    return {"shell": SimpleLazyObject(partial(shell_for, getattr(request, "user", AnonymousUser())))}


def shell_for(user: User | AnonymousUser) -> Shell:
    """Collect the frame's facts for one person."""
    now = f"{clock.now():%Y-%m-%dT%H:%M:%S.%fZ}"
    if not user.is_authenticated:
        return Shell(now=now)
    roles, name = roles_of(user), name_of(user)
    return Shell(
        signed_in=True,
        waiting=needed_count(user),
        running_plans=running_plans(user),
        roles=roles,
        reads_audit=ADMINISTRATOR in roles,
        display_name=name,
        initials=say_initials(name),
        now=now,
        undo_seconds=ceil(settings.TOOLGATE_UNDO_SECONDS),
        restored=last_fault() if ADMINISTRATOR in roles else "",
    )
