"""What a list of tools can be narrowed by, and how many tools each choice would show beside the other choices."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from django.db.models import Case, CharField, Count, F, Q, QuerySet, Value, When
from django.db.models.expressions import Combinable

from catalog.inventory.selectors import offered, within_categories
from catalog.models import Tool
from catalog.ui.labels import SAFETY, status_word

SWITCHES = {"true": "enabled", "false": "disabled"}
LEGENDS = {"safety_level": "Safety", "category": "Category", "source": "Source", "enabled": "Status"}
# What each tool has exactly one of; it may be in several categories.
COLUMNS: Mapping[str, Combinable] = {
    "safety_level": F("current_version__safety_level"),
    "source": F("source__name"),
    "enabled": Case(When(enabled=True, then=Value("true")), default=Value("false"), output_field=CharField()),
}
SHOWN = 8
"""Choices of a facet that are seen at once; the others are behind a press."""
KIND, CATEGORY, TOTAL = "kind", "category", "total"
Chosen = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Option:
    """One choice of a facet; `count` is how many tools it would show beside the other facets."""

    name: str
    value: str
    label: str
    icon: str
    count: int
    chosen: bool

    @property
    def id(self) -> str:
        """What its count is called on the page, whatever is in the value."""
        return f"n-{self.name}-{crc32(self.value.encode()):08x}"

    @property
    def parts(self) -> list[str]:
        """The label, cut behind each dot: there a line may end."""
        return re.split(r"(?<=\.)", self.label)


@dataclass(frozen=True, slots=True)
class Facet:
    """One thing to narrow by, with its choices."""

    legend: str
    options: Sequence[Option]

    @property
    def first(self) -> Sequence[Option]:
        """The choices that are seen at once."""
        return self.options[:SHOWN]

    @property
    def more(self) -> Sequence[Option]:
        """The choices behind a press."""
        return self.options[SHOWN:]

    @property
    def is_open(self) -> bool:
        """Whether one of those behind a press is chosen."""
        return any(option.chosen for option in self.more)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tools there are, how many were found, and how many each choice would show."""

    total: int
    found: int
    facets: Sequence[Facet]

    @property
    def chosen(self) -> Iterator[Option]:
        """The choices that apply."""
        return (option for facet in self.facets for option in facet.options if option.chosen)

    def of(self, name: str, value: str) -> int:
        """Return how many tools a choice would show."""
        options = (option for facet in self.facets for option in facet.options)
        return next((option.count for option in options if (option.name, option.value) == (name, value)), 0)


def narrowing(chosen: Chosen) -> Q:
    """Return the condition of what is chosen: of each facet any."""
    return Q(*(_condition(name, values) for name, values in chosen.items() if values))


def _condition(name: str, values: Sequence[str]) -> Q:
    match name:
        case "enabled":
            return Q(enabled__in=[value == "true" for value in values])
        case "category":
            return within_categories(values)
        case "source":
            return Q(source__name__in=values)
    return Q(current_version__safety_level__in=values)


def count(searched: Q, chosen: Chosen, known: Chosen) -> Counts:
    """Count, in one query that searches twice, the tools that fit, for each of the known choices.

    Tools are counted by kind, so that the numbers of all facets but the categories are sums of the same few rows.
    """
    found = offered().filter(searched)
    outside = found.filter(narrowing({name: chosen[name] for name in COLUMNS}))
    parts = [_part(CATEGORY, outside, category=F("categories__name")), _part(TOTAL, offered())]
    rows = list(_part(KIND, found, **COLUMNS, category=_in_chosen(chosen["category"])).union(*parts, all=True))
    kinds = [row for row in rows if row["part"] == KIND]
    tallies = {name: _tally(kinds, chosen, name) for name in COLUMNS}
    tallies["category"] = Counter({row["its_category"]: row["n"] for row in rows if row["part"] == CATEGORY})
    facets = [
        Facet(legend, [_option(name, value, tallies[name][value], chosen) for value in known[name]])
        for name, legend in LEGENDS.items()
    ]
    return Counts(
        total=sum(row["n"] for row in rows if row["part"] == TOTAL),
        found=sum(_tally(kinds, chosen).values()),
        facets=facets,
    )


def _part(part: str, tools: "QuerySet[Tool]", **columns: Combinable) -> "QuerySet[Any, Any]":
    """Count tools by these columns; the columns of the other parts are empty."""
    its = {f"its_{name}": columns.get(name, _text("")) for name in (*COLUMNS, "category")}
    return tools.order_by().values(part=_text(part), **its).annotate(n=Count("pk"))


def _in_chosen(categories: Sequence[str]) -> Combinable:
    """Return a column that is empty for a tool in none of the categories that are chosen."""
    if not categories:
        return _text("any")
    return Case(When(within_categories(categories), then=_text("any")), default=_text(""))


def _tally(kinds: Sequence[Mapping[str, Any]], chosen: Chosen, besides: str = "") -> Counter[str]:
    """Add up how many tools have each value, of those that fit every facet but one."""
    tally: Counter[str] = Counter()
    facets = [name for name in COLUMNS if chosen[name] and name != besides]
    for kind in kinds:
        if kind["its_category"] and all(kind[f"its_{name}"] in chosen[name] for name in facets):
            tally[kind[f"its_{besides}"] if besides else ""] += kind["n"]
    return tally


def _text(value: str) -> Value:
    return Value(value, output_field=CharField())


def _option(name: str, value: str, number: int, chosen: Chosen) -> Option:
    word = SAFETY.get(value) if name == "safety_level" else status_word(SWITCHES[value]) if name == "enabled" else None
    label, icon = (word.label, word.icon if name == "safety_level" else "") if word else (value, "")
    return Option(name, value, label, icon, number, value in chosen[name])
