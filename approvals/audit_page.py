"""The audit log as a page asks for it: filters from the URL, entries with their words, where the log goes on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.db.models import QuerySet, Subquery
from django.http import QueryDict
from django.utils.dateparse import parse_date

from approvals.audit.log import NOBODY
from approvals.audit.queries import TEXTS, AuditFilters, AuditTexts, entries_for
from approvals.audit_words import action_word
from approvals.models import AuditEntry, Instance
from catalog.ui.labels import Word

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PAGE_SIZE = 100
MAX_TEXT = 200
RECENT = 5000
"""How many of the newest entries the choices of the filters are read from."""
MOST_CHOICES = 500
MOST_COUNTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery(AuditTexts):
    """What the URL asks for: `since` and `until` are days as written, `before` and `after` an entry's number."""

    since: date | None = None
    until: date | None = None
    before: int | None = None
    after: int | None = None
    open: int | None = None

    @property
    def filters(self) -> AuditFilters:
        """The filters without the place in the log; the last day counts to its end."""
        day_after = self.until + timedelta(days=1) if self.until and self.until < date.max else None
        texts = {name: getattr(self, name) for name in TEXTS}
        return AuditFilters(**texts, since=_midnight(self.since), until=_midnight(day_after))

    @property
    def export_address(self) -> str:
        """Where all that fits is exported."""
        return self.address().replace("/audit/", "/audit/export/", 1)

    def address(self, **more: int | None) -> str:
        """Return the address of this list, going on elsewhere or with an entry opened."""
        named = {name: getattr(self, name) for name in TEXTS} | {"from": self.since, "to": self.until} | more
        parts = {name: value for name, value in named.items() if value}
        return f"/audit/?{urlencode(parts)}" if parts else "/audit/"


def read_query(params: QueryDict) -> AuditQuery:
    """Read a URL; what means nothing is left out."""
    texts = {name: params.get(name, "").replace("\x00", "").strip()[:MAX_TEXT] for name in TEXTS}
    read: dict[str, Any] = texts | {name: _number(params, name) for name in ("before", "after", "open")}
    return AuditQuery(since=_day(params.get("from", "")), until=_day(params.get("to", "")), **read)


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
    """All that the page shows; `older` and `newer` are the addresses of the next pages, None at the log's ends.

    `has_more`: more entries fit than `count`, which are all that are counted.
    """

    query: AuditQuery
    lines: Sequence[AuditLine]
    count: int
    has_more: bool
    older: str | None
    newer: str | None
    choices: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]


def audit_page(viewer: "User", query: AuditQuery) -> AuditPage:
    """Return the page that a URL asks for, in a fixed number of queries. Raises NotAllowed."""
    fitting = entries_for(viewer, query.filters)
    shown, has_older, has_newer = _page_of(fitting, query)
    older = query.address(before=shown[-1].seq) if has_older and shown else None
    newer = query.address(after=shown[0].seq) if has_newer and shown else None
    # Words are looked for in every entry: where one page has all that fit, the log is not searched again to count.
    found = fitting[: MOST_COUNTED + 1].count() if has_older or has_newer else len(shown)
    count, has_more = min(found, MOST_COUNTED), found > MOST_COUNTED
    lines = [_line(entry) for entry in shown]
    return AuditPage(query, lines, count, has_more, older, newer, _choices(viewer, query))


def _page_of(fitting: QuerySet[AuditEntry], query: AuditQuery) -> tuple[list[AuditEntry], bool, bool]:
    """Return the entries of one page, newest first, and whether there are older and newer ones."""
    if query.after is not None:
        found = list(fitting.filter(seq__gt=query.after).order_by("seq")[: PAGE_SIZE + 1])
        return found[:PAGE_SIZE][::-1], True, len(found) > PAGE_SIZE
    below = fitting.filter(seq__lt=query.before) if query.before is not None else fitting
    found = list(below[: PAGE_SIZE + 1])
    return found[:PAGE_SIZE], len(found) > PAGE_SIZE, query.before is not None


def _line(entry: AuditEntry) -> AuditLine:
    word = action_word(entry.action, str(entry.details_json.get("verdict", "")))
    # The name that the chain covers: the account may be called otherwise since, and nobody would notice.
    return AuditLine(entry, word, entry.actor_name, entry.actor_id is None and entry.actor_name == NOBODY)


def _choices(viewer: "User", query: AuditQuery) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return what the filters offer: who, which actions and which tools the newest entries name, and what is chosen."""
    head = Subquery(Instance.objects.filter(pk=1).values("audit_seq")[:1])
    newest = entries_for(viewer).filter(seq__gt=head - RECENT).order_by()
    recent = list(newest.values_list("actor_name", "action", "tool_name").distinct()[:MOST_CHOICES])
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
