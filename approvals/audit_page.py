"""The audit log as a page asks for it: filters from the URL, entries with their words, where the log goes on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils.dateparse import parse_date

from approvals.audit import NOBODY
from approvals.audit_selectors import AuditFilters, entries_for
from approvals.audit_words import action_word
from approvals.models import AuditEntry
from catalog.access import name_of
from catalog.words import Word

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PAGE_SIZE = 100
MAX_TEXT = 200
RECENT = 5000
"""How many of the newest entries the choices of the filters are read from."""
TEXTS = ("q", "who", "action", "tool")


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """What the URL asks for: `since` and `until` are days as written, `before` an entry's number."""

    q: str = ""
    who: str = ""
    action: str = ""
    tool: str = ""
    since: date | None = None
    until: date | None = None
    before: int | None = None
    open: int | None = None

    @property
    def filters(self) -> AuditFilters:
        """The filters; the last day counts to its end."""
        after = self.until + timedelta(days=1) if self.until and self.until < date.max else None
        texts = {name: getattr(self, name) for name in TEXTS}
        return AuditFilters(**texts, since=_midnight(self.since), until=_midnight(after), before=self.before)

    def address(self, **more: int | None) -> str:
        """Return the address of this list, going on elsewhere or with an entry opened."""
        named = {name: getattr(self, name) for name in TEXTS} | {"from": self.since, "to": self.until} | more
        parts = {name: value for name, value in named.items() if value}
        return f"/audit/?{urlencode(parts)}" if parts else "/audit/"


def read_query(params: QueryDict) -> AuditQuery:
    """Read a URL; what means nothing is left out."""
    texts = {name: params.get(name, "").replace("\x00", "").strip()[:MAX_TEXT] for name in TEXTS}
    days = (_day(params.get("from", "")), _day(params.get("to", "")))
    return AuditQuery(
        **texts, since=days[0], until=days[1], before=_number(params, "before"), open=_number(params, "open")
    )


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One entry with its words."""

    entry: AuditEntry
    word: Word
    who: str
    is_program: bool

    @property
    def mark(self) -> str:
        """The classes of its icon."""
        return f"sti {self.word.hue}"


@dataclass(frozen=True, slots=True)
class AuditPage:
    """All that the page shows; `older` is the address of what came before, None at the end of the log."""

    query: AuditQuery
    lines: Sequence[AuditLine]
    count: int
    older: str | None
    choices: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]


def audit_page(viewer: "User", query: AuditQuery) -> AuditPage:
    """Return the page that a URL asks for, in a fixed number of queries. Raises NotAllowed."""
    found = list(entries_for(viewer, query.filters)[: PAGE_SIZE + 1])
    shown = found[:PAGE_SIZE]
    older = query.address(before=shown[-1].seq) if len(found) > PAGE_SIZE else None
    total = entries_for(viewer, AuditQuery(*_all_but_place(query)).filters).count()
    return AuditPage(query, [_line(entry) for entry in shown], total, older, _choices(viewer, query))


def _all_but_place(query: AuditQuery) -> tuple[str, str, str, str, date | None, date | None]:
    return (query.q, query.who, query.action, query.tool, query.since, query.until)


def _line(entry: AuditEntry) -> AuditLine:
    word = action_word(entry.action, str(entry.details_json.get("verdict", "")))
    who = name_of(entry.actor) if entry.actor else entry.actor_name
    return AuditLine(entry, word, who, entry.actor is None and entry.actor_name == NOBODY)


def _choices(viewer: "User", query: AuditQuery) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return what the filters offer: who, which actions and which tools the newest entries name, and what is chosen."""
    recent = list(entries_for(viewer).values_list("actor_name", "action", "tool_name")[:RECENT])
    who, actions, tools = (set(column) for column in zip(*recent, strict=True)) if recent else (set(), set(), set())
    return [
        ("who", "Anyone", _options(who | {query.who})),
        (
            "action",
            "All actions",
            [(action, action_word(action).label) for action in sorted(actions | {query.action}) if action],
        ),
        ("tool", "All tools", _options(tools | {query.tool})),
    ]


def _options(values: Iterable[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in sorted(values) if value]


def _day(text: str) -> date | None:
    try:
        return parse_date(text)
    except ValueError:
        return None


def _midnight(day: date | None) -> datetime | None:
    return datetime.combine(day, time.min, tzinfo=UTC) if day else None


def _number(params: QueryDict, name: str) -> int | None:
    text = params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
