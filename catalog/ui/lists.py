"""Lists of rows as pages show them: tabs with counts, filters, search, sort orders, keyset pages, chips.

A page describes its list once, as a `ListDefinition`. The URL holds all state; default values are left out, and unknown
ones are ignored and reported. `templates/lists/` draws every list alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlencode
from zlib import crc32

from django.contrib.auth.models import User
from django.db.models import Case, Count, F, IntegerField, Min, Model, Q, QuerySet, Value, When
from django.db.models.expressions import Combinable
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _
from rest_framework.exceptions import ValidationError

from catalog.access.roles import user_display_name
from catalog.core import clock
from catalog.models import SavedFilter
from catalog.rest.pagination import PageCursor, PageParameters, paginate
from catalog.text.formats import current_reader, format_number
from catalog.ui.labels import SAFETY_BADGES, status_badge

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

RowT = TypeVar("RowT", bound=Model)

PAGE_SIZE = 50
MAX_QUERY = 200
MAX_VALUES = 50
"""Maximum values of one filter that are read from a URL."""
MAX_CHOICES = 200
"""Maximum choices that a filter offers; those that are set come first."""
MAX_COUNTED = 5000
"""Number of newest rows that are counted. If there are more, counts are minimums."""
MAX_REPEATED = 40
"""Maximum characters of an unknown value that a page repeats."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a filter. `count` is how many rows the list has with this value and the other filters."""

    value: str
    label: "StrOrPromise"
    icon: str = ""
    hue: str = ""
    count: int | None = None


Offer = Callable[[User, Sequence[str]], Sequence[Choice]]
"""Returns the choices of a filter for a viewer; the values that are set are among them if they are valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """A filter: a set of choices, or without `offer` a text (`kind` text) or a day (`kind` day, as YYYY-MM-DD).

    `condition` turns the values into a condition on the rows; without it, `ListDefinition.rows` applies the filter. A
    column in `counted_by` makes the page count the rows of each choice.
    """

    name: str
    label: "StrOrPromise"
    condition: Callable[[Sequence[str]], Q] | None = None
    offer: Offer | None = None
    several: bool = True
    kind: str = "text"
    counted_by: str = ""

    @property
    def has_choices(self) -> bool:
        return self.offer is not None

    def read(self, values: Sequence[str], choices: Sequence[Choice]) -> tuple[str, ...]:
        """Return the valid values among those of a URL."""
        given = [value.strip()[:MAX_QUERY] for value in dict.fromkeys(values) if "\x00" not in value]
        if self.offer is not None:
            known = {choice.value for choice in choices}
            given = [value for value in given if value in known]
        elif self.kind == "day":
            given = [value for value in given if parse_day(value)]
        return tuple(value for value in given if value)[: MAX_VALUES if self.several and self.offer else 1]


def parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def start_of_day(text: str) -> datetime:
    """Return the midnight, in the reader's time zone, at which a day written YYYY-MM-DD begins."""
    return datetime.combine(date.fromisoformat(text), time.min, tzinfo=current_reader().zone)


AGES = {
    "1h": (_("Last hour"), timedelta(hours=1)),
    "1d": (_("Last 24 hours"), timedelta(days=1)),
    "7d": (_("Last 7 days"), timedelta(days=7)),
    "30d": (_("Last 30 days"), timedelta(days=30)),
}


def age_filter(column: str) -> ListFilter:
    """Return a filter for rows whose time `column` is not older than one of `AGES`."""
    choices = [Choice(value, words) for value, (words, _span) in AGES.items()]
    return ListFilter(
        name="age",
        label=_("Age"),
        several=False,
        offer=lambda _viewer, _chosen: choices,
        condition=lambda values: Q(**{f"{column}__gte": clock.now() - AGES[values[0]][1]}),
    )


def column_filter(*, name: str, label: "StrOrPromise", offer: Offer, column: str) -> ListFilter:
    """Return a filter for rows whose `column` has one of the chosen values."""
    return ListFilter(name=name, label=label, offer=offer, condition=lambda values: Q(**{f"{column}__in": values}))


def fixed_choices(choices: Sequence[Choice]) -> Offer:
    return lambda _viewer, _chosen: choices


def level_choices() -> list[Choice]:
    """Return the safety levels as choices, the most dangerous first."""
    return [Choice(value, badge.label, badge.icon, badge.hue) for value, badge in reversed(SAFETY_BADGES.items())]


def status_choices(statuses: Sequence[str]) -> list[Choice]:
    badges = ((status, status_badge(status)) for status in statuses)
    return [Choice(status, badge.label, badge.icon, badge.hue) for status, badge in badges]


def column_choices(rows: "QuerySet[Any]", column: str, chosen: Sequence[str]) -> list[Choice]:
    """Return at most `MAX_CHOICES` values of a text column, those in `chosen` first. One query."""
    # Grouped, not DISTINCT: PostgreSQL sorts distinct rows by selected columns only.
    values = rows.order_by().values_list(column).annotate(is_other=Min(_is_other(f"{column}__in", chosen)))
    return [Choice(value, value) for value, _rank in values.order_by("is_other", column)[:MAX_CHOICES]]


def person_choices(people: "QuerySet[User]", chosen: Sequence[str]) -> list[Choice]:
    """Return people as choices by username, those in `chosen` first. One query."""
    found = people.annotate(is_other=_is_other("username__in", chosen)).order_by("is_other", "username")
    return [Choice(person.username, user_display_name(person)) for person in found[:MAX_CHOICES]]


def _is_other(condition: str, chosen: Sequence[str]) -> Case:
    """Return the sort key that puts the rows with a chosen value first."""
    return Case(When(**{condition: list(chosen)}, then=Value(0)), default=Value(1), output_field=IntegerField())


@dataclass(frozen=True, slots=True)
class SortOrder:
    """A sort order by a column (`-` before it sorts descending), then by key; or by an expression, ascending.

    A function returns the expression for the search text.
    """

    label: "StrOrPromise"
    by: str | Combinable | Callable[[str], Combinable]


@dataclass(frozen=True, slots=True)
class Column:
    """A column heading. It links to the orders `up` and `down`; `down_first` names the one to begin with."""

    label: "StrOrPromise"
    up: str = ""
    down: str = ""
    down_first: bool = True
    classes: str = ""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """State of a list as its URL holds it. `sort` is empty for the default order; `ignored` has unknown values."""

    path: str
    tab_name: str
    tab: str = ""
    q: str = ""
    chosen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sort: str = ""
    cursor: PageCursor | None = None
    ignored: tuple[str, ...] = ()

    def values(self, name: str) -> tuple[str, ...]:
        return self.chosen.get(name, ())

    @property
    def is_narrowed(self) -> bool:
        """True if a search, a filter or a tab leaves rows out."""
        return bool(self.tab or self.q or any(self.chosen.values()))

    @property
    def is_plain(self) -> bool:
        """True for the first page of the whole list in its default order, which receives new rows."""
        return not (self.is_narrowed or self.sort) and self.cursor is None

    @property
    def text(self) -> str:
        """The query string, without default values and without the position in the list."""
        parts = [(self.tab_name, self.tab)] if self.tab else []
        parts += [("q", self.q)] if self.q else []
        parts += [(name, value) for name, values in self.chosen.items() for value in values]
        parts += [("sort", self.sort)] if self.sort else []
        return urlencode(parts)

    @property
    def url(self) -> str:
        cursor = urlencode({"cursor": self.cursor.text()}) if self.cursor else ""
        text = "&".join(part for part in (self.text, cursor) if part)
        return f"{self.path}?{text}" if text else self.path

    def first_page(self, **changes: Any) -> "ListQuery":
        return replace(self, cursor=None, **changes)

    def without(self, name: str, value: str) -> "ListQuery":
        kept = tuple(each for each in self.values(name) if each != value)
        return self.first_page(chosen={**self.chosen, name: kept})


@dataclass(frozen=True, kw_only=True)
class ListDefinition(Generic[RowT]):
    """Description of one list: its rows, what narrows and sorts them, and the templates that draw them.

    `rows` returns what the viewer may see. `present` turns the rows of one page into what `row_template` draws, in a
    fixed number of queries. `tabs` maps the values of the parameter `tab_name` to a label and a condition; the first,
    with an empty value, is the whole list. `columns` are the headings after the badge; the first is the title.
    """

    name: str
    path: str
    count_text: Any
    """A lazy plural of Django with the variables `count` and `shown`."""
    search_label: "StrOrPromise"
    search_hint: "StrOrPromise"
    rows: Callable[[User, ListQuery], "QuerySet[RowT]"]
    present: Callable[[User, Sequence[RowT]], Sequence[Any]]
    search: Callable[[str], Q]
    orders: Mapping[str, SortOrder]
    columns: Sequence[Column]
    row_template: str
    empty_template: str
    footer_template: str = ""
    no_match_template: str = ""
    no_match_hint: Callable[["ListPage[RowT]"], Any] | None = None
    """Returns what `no_match_template` needs; called only if nothing matches."""
    tab_name: str = "status"
    tabs: Mapping[str, tuple["StrOrPromise", Q]] = field(default_factory=dict)
    filters: Sequence[ListFilter] = ()
    search_order: str = ""
    """The default order while there is search text; otherwise the first of `orders` is the default."""
    csv_columns: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)
    csv_present: Callable[[User, Sequence[RowT]], Sequence[Any]] | None = None
    """Like `present`, for `csv_columns` that need more; it masks private values, whoever exports them."""
    live_rows: str = ""
    """The id of the list that a socket adds new rows to, on a plain first page."""

    def default_order(self, q: str) -> str:
        plain = next(name for name in self.orders if name != self.search_order)
        return self.search_order if q and self.search_order else plain

    def read(self, params: QueryDict, choices: Mapping[str, Sequence[Choice]]) -> ListQuery:
        """Return the state in a URL; `choices` has the choices of each filter."""
        tab, sort = params.get(self.tab_name, ""), params.get("sort", "")
        q = params.get("q", "").replace("\x00", "").strip()[:MAX_QUERY]
        chosen, ignored = {}, [tab] if tab not in self._tab_values else []
        for each in self.filters:
            given = [value.strip() for value in params.getlist(each.name) if value.strip()]
            chosen[each.name] = each.read(given, choices[each.name])
            ignored += [value for value in dict.fromkeys(given) if value[:MAX_QUERY] not in chosen[each.name]]
        is_order = sort in self.orders and (bool(q) or sort != self.search_order)
        ignored += [sort] if sort and sort not in self.orders else []
        cursor = None
        try:
            cursor = PageCursor.read(params.get("cursor", ""))
        except ValidationError:
            ignored.append(params.get("cursor", ""))
        return ListQuery(
            path=self.path,
            tab_name=self.tab_name,
            tab=tab if tab in self._tab_values else "",
            q=q,
            chosen=chosen,
            sort=sort if is_order and sort != self.default_order(q) else "",
            cursor=cursor,
            ignored=tuple(value[:MAX_REPEATED] for value in ignored[:MAX_VALUES]),
        )

    @property
    def _tab_values(self) -> set[str]:
        return {"", *self.tabs}

    def offered(self, viewer: User, params: QueryDict) -> dict[str, Sequence[Choice]]:
        """Return the choices of each filter; one query for each that asks the database."""
        given = {
            each.name: [value for value in params.getlist(each.name)[:MAX_VALUES] if "\x00" not in value]
            for each in self.filters
        }
        return {each.name: each.offer(viewer, given[each.name]) if each.offer else () for each in self.filters}

    def condition(self, query: ListQuery, *, except_for: str = "") -> Q:
        """Return the condition of the search and of all filters but `except_for`, without the tab."""
        found = self.search(query.q) if query.q else Q()
        for each in self.filters:
            values = query.values(each.name)
            if values and each.condition is not None and each.name != except_for:
                found &= each.condition(values)
        return found

    def tab_condition(self, query: ListQuery) -> Q:
        return self.tabs[query.tab][1] if query.tab else Q()

    def sorted_rows(self, rows: "QuerySet[RowT]", query: ListQuery) -> tuple["QuerySet[RowT]", str]:
        """Return the rows with the column that they are to be sorted by, and its name."""
        order = self.orders[query.sort or self.default_order(query.q)].by
        if isinstance(order, str):
            return rows, order
        annotated: Any = rows.annotate(sort_key=order if isinstance(order, Combinable) else order(query.q))
        return annotated, "sort_key"


LISTS: dict[str, ListDefinition[Any]] = {}
"""Every list by name, for saved filters."""


def register_list(definition: ListDefinition[RowT]) -> ListDefinition[RowT]:
    LISTS[definition.name] = definition
    return definition


@dataclass(frozen=True, slots=True)
class Tab:
    label: str
    url: str
    count: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class FilterMenu:
    """One filter as the bar shows it, with its choices and the values that are set."""

    filter: ListFilter
    choices: Sequence[Choice]
    chosen: Sequence[str]

    @property
    def value(self) -> str:
        return self.chosen[0] if self.chosen else ""

    @property
    def is_long(self) -> bool:
        """True if the choices need a field that narrows them."""
        return len(self.choices) > 10

    def count_id(self, choice: Choice) -> str:
        """Return the HTML id of a count. A checksum stands for the value, which may have any characters."""
        return f"n-{self.filter.name}-{crc32(choice.value.encode()):08x}"

    @property
    def options(self) -> list[tuple[Choice, str, bool]]:
        """Each choice with the id of its count, and whether it is set."""
        return [(each, self.count_id(each), each.value in self.chosen) for each in self.choices]


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter value that is set, with the URL of the list without it."""

    label: str
    value: "StrOrPromise"
    url: str


@dataclass(frozen=True, slots=True)
class Heading:
    column: Column
    url: str
    direction: str


@dataclass(frozen=True)
class ListPage(Generic[RowT]):
    """One page of a list for one viewer. `older` and `newer` are URLs of the adjacent pages, empty without one."""

    definition: ListDefinition[RowT]
    viewer: User
    query: ListQuery
    rows: Sequence[Any]
    counts: Mapping[str, int]
    counted: int
    menus: Sequence[FilterMenu]
    older: str
    newer: str

    def count_of(self, number: int) -> str:
        """Return a count as it is shown: a minimum with a plus sign, and nothing if only older rows may match."""
        if self.counted <= MAX_COUNTED:
            return format_number(number)
        return f"{format_number(number)}+" if number else ""

    @property
    def count(self) -> int:
        """Number of rows that match, of those that are counted."""
        return self.counts[f"tab_{self.query.tab}"]

    @property
    def count_text(self) -> str:
        return str(self.definition.count_text % {"count": self.count, "shown": self.count_of(self.count)})

    @property
    def tabs(self) -> list[Tab]:
        return [
            Tab(
                str(label),
                self.query.first_page(tab=value).url,
                self.count_of(self.counts[f"tab_{value}"]),
                value == self.query.tab,
            )
            for value, (label, _condition) in self.definition.tabs.items()
        ]

    @property
    def chips(self) -> list[Chip]:
        return [
            Chip(
                str(menu.filter.label),
                next((each.label for each in menu.choices if each.value == value), value),
                self.query.without(menu.filter.name, value).url,
            )
            for menu in self.menus
            for value in menu.chosen
        ]

    @property
    def clear_url(self) -> str:
        """The URL of the current tab without search and filters."""
        return self.query.first_page(q="", chosen={}).url

    @property
    def item_url(self) -> str:
        """The URL of this page up to a further parameter, such as `open=1`."""
        return self.query.url + ("&" if "?" in self.query.url else "?")

    @property
    def without_search_url(self) -> str:
        return self.query.first_page(q="").url

    @property
    def first_url(self) -> str:
        return self.query.first_page().url

    @property
    def search_url(self) -> str:
        """The URL of the search in the whole list, without filters."""
        return self.query.first_page(tab="", chosen={}).url

    @property
    def sort(self) -> str:
        return self.query.sort or self.definition.default_order(self.query.q)

    @property
    def orders(self) -> list[tuple[str, str, bool]]:
        """Each order's value in the URL (empty for the default), its label, and whether it applies."""
        default = self.definition.default_order(self.query.q)
        return [
            ("" if name == default else name, str(order.label), name == self.sort)
            for name, order in self.definition.orders.items()
            if self.query.q or name != self.definition.search_order
        ]

    @property
    def order_label(self) -> str:
        return str(self.definition.orders[self.sort].label)

    @property
    def headings(self) -> list[Heading]:
        return [self._heading(column) for column in self.definition.columns]

    def _heading(self, column: Column) -> Heading:
        directions = {column.up: "ascending", column.down: "descending"} if column.up else {}
        first, second = (column.down, column.up) if column.down_first else (column.up, column.down)
        target = second if self.sort == first else first
        sort = "" if target == self.definition.default_order(self.query.q) else target
        return Heading(column, self.query.first_page(sort=sort).url if target else "", directions.get(self.sort, ""))

    @property
    def csv_url(self) -> str:
        """The URL of the matching rows as CSV; empty if the list has none."""
        text = "&".join(part for part in (self.query.text, "format=csv") if part)
        return f"{self.query.path}?{text}" if self.definition.csv_columns else ""

    @property
    def hint(self) -> Any:
        hint_for = self.definition.no_match_hint
        return hint_for(self) if hint_for else None

    @cached_property
    def saved(self) -> list["SavedLink"]:
        """The filters that the viewer has saved for this list, by name. One query."""
        found = SavedFilter.objects.filter(person=self.viewer.pk, list_name=self.definition.name).order_by("name")
        return [SavedLink(each, f"{self.query.path}?{each.query}", each.query == self.query.text) for each in found]


@dataclass(frozen=True, slots=True)
class SavedLink:
    filter: SavedFilter
    url: str
    is_current: bool


def list_page(definition: ListDefinition[RowT], viewer: User, params: QueryDict) -> ListPage[RowT]:
    """Return the page that a URL names, in a fixed number of queries; in one fewer if nothing needs to be counted."""
    offered = definition.offered(viewer, params)
    query = definition.read(params, offered)
    rows = definition.rows(viewer, query)
    found = rows.filter(definition.condition(query))
    ordered, order = definition.sorted_rows(found.filter(definition.tab_condition(query)), query)
    try:
        page = paginate(ordered, order=order, at=PageParameters(PAGE_SIZE, query.cursor))
    except ValidationError:  # a cursor of another order
        query = replace(query, cursor=None, ignored=(*query.ignored, params.get("cursor", "")[:MAX_REPEATED]))
        page = paginate(ordered, order=order, at=PageParameters(PAGE_SIZE))
    is_whole = page.next is None and page.previous is None and not definition.tabs
    # A search may read every row, so a result without tabs that fits on one page is not counted by a second one.
    counts = {"tab_": len(page.rows), "counted": 0} if is_whole else _count_tabs(definition, found)
    return ListPage(
        definition=definition,
        viewer=viewer,
        query=query,
        rows=definition.present(viewer, page.rows),
        counts=counts,
        counted=counts["counted"],
        menus=[
            FilterMenu(each, _count_choices(definition, each, rows, query, offered[each.name]), query.values(each.name))
            for each in definition.filters
        ],
        older=replace(query, cursor=page.next).url if page.next else "",
        newer=replace(query, cursor=page.previous).url if page.previous else "",
    )


def _count_tabs(definition: ListDefinition[RowT], found: "QuerySet[RowT]") -> dict[str, int]:
    """Return the number of rows of each tab (`tab_` and its value) and of those looked at (`counted`). One query.

    Only the newest rows are counted, so that the page of a long history costs no more than a short one's.
    """
    newest = found.order_by("-pk").values("pk")[: MAX_COUNTED + 1]
    tabs = {value: condition for value, (_label, condition) in definition.tabs.items() if value}
    counted = {f"tab_{value}": Count("pk", filter=condition) for value, condition in tabs.items()}
    counts = found.order_by().filter(pk__in=newest).aggregate(counted=Count("pk"), **counted)
    return {"tab_": min(counts["counted"], MAX_COUNTED), **counts}


def _count_choices(
    definition: ListDefinition[RowT],
    list_filter: ListFilter,
    rows: "QuerySet[RowT]",
    query: ListQuery,
    choices: Sequence[Choice],
) -> Sequence[Choice]:
    """Return the choices with the number of rows of each, under the other filters. One query if they are counted."""
    if not list_filter.counted_by:
        return choices
    beside = rows.filter(definition.condition(query, except_for=list_filter.name) & definition.tab_condition(query))
    counts = dict(
        beside.order_by()
        .annotate(value=F(list_filter.counted_by))
        .values_list("value")
        .annotate(Count("pk", distinct=True))
    )
    return [replace(choice, count=counts.get(choice.value, 0)) for choice in choices]
