"""Limits of tokens: which values are valid, and that both forms of the question agree on every tool."""

import pytest

from catalog.access.limits import MAX_NAMES, breaches_of, read_limits, tools_within
from catalog.errors import ParameterError
from catalog.models import Category, Tool
from tests.corpus import faults


def test_invalid_limits_are_refused_at_their_field():
    cases = [
        ("limits", []),
        ("limits", "safe"),
        ("limits", 1),
        ("limits.levels", {"levels": ["safe"]}),
        ("limits.max_level", {"max_level": "harmless"}),
        ("limits.max_level", {"max_level": None}),
        ("limits.max_level", {"max_level": ["safe"]}),
        ("limits.categories", {"categories": "text"}),
        ("limits.categories", {"categories": None}),
        ("limits.categories", {"categories": ["c"] * (MAX_NAMES + 1)}),
        ("limits.categories.1", {"categories": ["text", ""]}),
        ("limits.categories.0", {"categories": ["c" * 65]}),
        ("limits.sources.0", {"sources": [1]}),
        ("limits.sources.0", {"sources": ["a\0b"]}),
        ("limits.sources.0", {"sources": ["s" * 129]}),
    ]

    def check(path, value):
        with pytest.raises(ParameterError) as refusal:
            read_limits(value)
        assert refusal.value.details["field"] == path

    assert faults(check, cases) == {}


def test_limits_are_kept_in_one_form():
    assert read_limits(None) is None
    assert read_limits({}) is None
    assert read_limits({"categories": []}) == {"categories": []}
    assert read_limits({"sources": ["b", "a", "b"]}) == {"sources": ["b", "a"]}


@pytest.mark.db
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (None, ("plain", "tagged", "two", "harsh")),
        ({"max_level": "cautious"}, ("plain", "tagged", "two")),
        ({"max_level": "safe"}, ("plain", "tagged")),
        ({"categories": ["a"]}, ("tagged",)),
        ({"categories": ["a", "b"]}, ("tagged", "two")),
        ({"categories": []}, ()),
        ({"sources": ["tests.tools_for_tests"]}, ("plain", "tagged", "two", "harsh")),
        ({"sources": []}, ()),
        ({"sources": ["elsewhere"]}, ()),
        ({"max_level": "safe", "categories": ["a", "b"]}, ("tagged",)),
        ({"of_a_later_version": 1}, ()),
    ],
)
def test_rows_and_calls_have_the_same_limits(stage, limits, expected):
    levels = {"plain": "safe", "tagged": "keeping", "two": "cautious", "harsh": "dangerous"}
    rows = {name: Tool.objects.select_related("current_version", "source").get(name=of) for name, of in levels.items()}
    a, b = (Category.objects.get_or_create(name=name)[0] for name in ("a", "b"))
    rows["tagged"].categories.set([a])
    rows["two"].categories.set([a, b])

    found = set(Tool.objects.filter(tools_within(limits)).values_list("name", flat=True))
    assert {name for name, row in rows.items() if row.name in found} == set(expected)
    levels_of = {"plain": "safe", "tagged": "safe", "two": "cautious", "harsh": "dangerous"}
    for name, row in rows.items():
        names = [category.name for category in row.categories.all()]
        breaches = breaches_of(limits, level=levels_of[name], categories=names, source=row.source.name)
        assert (not breaches) is (name in expected), (name, breaches)
