"""Installation of the demo: its people, tools and stories, created once, and the mark that it is a demo."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from random import Random

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from approvals.audit.log import AuditRecord, append_entry
from approvals.models import AuditEntry, Delivery
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.database import on_sqlite
from catalog.core.transactions import try_move
from catalog.errors import Conflict
from catalog.inventory.sync import sync_tools
from catalog.models import ApiToken, Call
from plans.actions.create import create_plan
from plans.demo.agents import make_agents
from plans.demo.people import (
    MAIL_DOMAIN,
    STORY_TOKENS,
    DemoSignIn,
    create_tokens,
    has_story_tokens,
    reset_people,
    reset_tokens,
)
from plans.demo.policies import allow_long_waits, make_policies
from plans.demo.sources import enable_shipped_sets, make_sources
from plans.demo.stories import past_stories, statement_run, todays_stories, workdays
from plans.demo.timeline import Timeline
from plans.executor.heartbeats import live_executors
from plans.models import Plan
from plans.store.requesters import Requester

CREATED = "demo.created"
"""Action of the audit entry that ends the demo's history."""
NOTE = "This is a demo. Its people, plans, calls and decisions up to this entry are invented."
FILES = Path(__file__).parent / "files"
SEED = 2026
OPENS = time(7)
TODAY = timedelta(hours=4)
"""The stories of today begin within this time before the demo opens."""
IN_USE = (
    "A server or worker uses this database, so the demo has no plans. Stop it and run the demo again to create them."
)
INTERRUPTED = (
    "An earlier run was interrupted while it created the demo's history. Start over with an empty database: remove "
    "var/, or set DATABASE_URL to a new one."
)
OWN_PLANS = (
    "This installation has plans or calls of its own. The demo needs its own database: set DATABASE_URL to a new one."
)
OWN_PEOPLE = (
    "This installation has people of its own, and the demo would add an administrator whose password is printed. The "
    "demo needs its own database: set DATABASE_URL to a new one."
)

Tokens = Mapping[str, tuple[ApiToken, str]]


@dataclass(frozen=True, slots=True)
class Demo:
    """The sign-ins and tokens of this run, and sentences about parts that are missing."""

    sign_ins: list[DemoSignIn]
    tokens: Tokens
    problems: list[str]


def set_up_demo() -> Demo:
    """Reset the demo's people and tokens; the first run creates everything else, with a history of two weeks.

    Raises Conflict if the installation has plans of other people, or other people and no plans yet, if a person has the
    name of a demo user, or if the first run was interrupted.
    """
    if Plan.objects.exclude(author__email__endswith=f"@{MAIL_DOMAIN}").exists():
        raise Conflict(OWN_PLANS)
    has_plans = Plan.objects.exists() or Call.objects.exists()
    if not has_plans and User.objects.exclude(email__endswith=f"@{MAIL_DOMAIN}").exists():
        raise Conflict(OWN_PEOPLE)
    if has_plans and demo_created_at() is None and has_story_tokens():
        raise Conflict(INTERRUPTED)
    if has_plans or live_executors():
        people = _set_up_people()
        problems = [] if has_plans else [IN_USE]
    else:
        people, problems = _create_history(clock.now()), []
    problem = make_sources()
    if problem:
        problems.append(f"The demo's source has no tools: {problem}")
    return Demo(*people, problems)


def demo_created_at() -> datetime | None:
    """Return when the demo was created; None if this installation is no demo."""
    return AuditEntry.objects.filter(action=CREATED).values_list("at", flat=True).first()


def _set_up_people() -> tuple[list[DemoSignIn], Tokens]:
    """Synchronise the tools, reset people and tokens, and create what else is missing, but no plans."""
    sync_tools()
    people, tokens = reset_people(), reset_tokens()
    enable_shipped_sets()
    make_policies()
    make_agents()
    return people, tokens


def _create_history(now: datetime) -> tuple[list[DemoSignIn], Tokens]:
    """Set up the demo as of two weeks ago, and tell its stories up to `now`."""
    lay_out_files()
    random = Random(SEED)  # noqa: S311 - the same stories each time
    with clock.settable(), _quiet_log(), _quick_commits():
        with clock.at(datetime.combine(workdays(now.date())[0], OPENS, UTC)):
            since = clock.now()
            people, tokens = _set_up_people()
            story_tokens = {**tokens, **create_tokens(STORY_TOKENS)}
        timeline = Timeline(now, {name: text for name, (_, text) in story_tokens.items()}, random)
        for story in (*past_stories(now, random), *todays_stories(now)):
            timeline.add(story)
        timeline.at(now - TODAY, allow_long_waits)
        timeline.tell()
    # Nobody is notified of what was long ago.
    try_move(Delivery.objects.filter(status=Delivery.Status.DUE), to=Delivery.Status.DROPPED)
    details = {"note": NOTE, "since": format_utc(since), "plans": Plan.objects.count(), "calls": Call.objects.count()}
    append_entry(AuditRecord(action=CREATED, by=User.objects.get(username="admin"), details=details))
    create_plan(statement_run(now.date()), by=Requester(User.objects.get(username="ben")))
    return people, tokens


def lay_out_files() -> None:
    """Copy the demo's files to the workspace; existing files are kept."""
    for source in sorted(path for path in FILES.rglob("*") if path.is_file()):
        target = settings.TOOLGATE_WORKSPACE / source.relative_to(FILES)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())


@contextmanager
def _quick_commits() -> Iterator[None]:
    """Let SQLite commit without waiting for the disk: a power cut may cost a demo."""
    if on_sqlite():
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        if on_sqlite():
            connection.close()  # the next one has the setting's own mode


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Leave the history's calls and checkpoints out of this process's log."""
    log = logging.getLogger("toolgate")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)
