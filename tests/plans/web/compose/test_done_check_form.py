"""Tests of `done_check` by parts: text and parts are two sides of one value."""

import ast

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.expressions import parse
from plans.web.compose.done_check_form import KINDS, OPERATORS, Condition, DoneCheckForm, check_rows, check_text

STEPS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="."), min_size=1)
SUBJECTS = st.builds(
    lambda key, steps: ".".join([key, *steps]),
    st.sampled_from(["value", "revenue", "_a1"]),
    st.lists(st.one_of(STEPS, st.sampled_from(["0", "12", "007"])), max_size=2),
)
NUMBERS = st.one_of(st.integers(-(10**9), 10**9).map(str), st.sampled_from(["1.5", "-0.25", "1e3"]))
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20)


@st.composite
def conditions(draw, first=False):
    """A row that has no problem."""
    operator = draw(st.sampled_from(list(OPERATORS)))
    takes, kind, value = OPERATORS[operator].takes, "text", ""
    if takes == "number":
        kind, value = "number", draw(NUMBERS)
    elif takes == "list":
        kind = draw(st.sampled_from(["text", "number"]))
        value = "\n".join(draw(st.lists(NUMBERS if kind == "number" else TEXTS, min_size=1, max_size=3)))
    elif takes:
        kind = draw(st.sampled_from(list(KINDS)))
        value = draw({"text": TEXTS, "number": NUMBERS, "result": SUBJECTS}.get(kind, st.just("")))
    joiner = draw(st.sampled_from(["and", "or"]))
    return Condition(draw(SUBJECTS), operator, kind, value, joiner)


@given(st.lists(conditions(), min_size=1, max_size=4))
def test_parts_survive_as_text(rows):
    """Numbers may be written in another notation; everything else comes back as it was."""
    rows = [Condition(rows[0].subject, rows[0].operator, rows[0].kind, rows[0].value), *rows[1:]]
    text = check_text(rows)
    if len(text) > 500:
        return
    found = check_rows(text)
    assert found is not None, text
    assert [row.joiner for row in found] == [row.joiner for row in rows]
    assert ast.dump(parse(check_text(found))) == ast.dump(parse(text))
    for row, again in zip(rows, found, strict=True):
        assert (again.subject, again.operator, again.kind) == (row.subject, row.operator, row.kind)
        assert again.kind == "number" or again.value == row.value


@pytest.mark.parametrize(
    "text",
    [
        "revenue is not None and value['results'][0] >= 5 or not failed",
        "'x' in names and len(names) >= 2",
        "status in ['done', \"sent\"] and note != None",
        "memory['class'] == other['a'] and count > -1.5",
    ],
)
def test_text_survives_as_parts(text):
    rows = check_rows(text)
    assert rows is not None
    assert ast.dump(parse(check_text(rows))) == ast.dump(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "(a or b) and c",
        "0 < count < 10",
        "count + 1 > 2",
        "a if b else c",
        "value[1:2]",
        "a in []",
        "a in [1, 'x']",
        "a == 'x\\ry'",
        "a['b.c'] == 1",
        "a['0'] == 1",
        "a is b",
        "len() == 1",
        "(a and b) and c",
        "a[True]",
        "a ==",
        "a in ['x\\ny']",
    ],
)
def test_text_that_parts_cannot_say_stays_text(text):
    form = DoneCheckForm.of_text(text)
    assert form.mode == "text" and form.done_check() == text
    form.press("show", "parts")
    assert form.mode == "text" and form.sentence


def test_rows_of_a_submitted_form():
    sent = QueryDict(mutable=True)
    sent.setlist("check_subject", ["revenue", "", "apple.results.0"])
    sent.setlist("check_operator", ["least", "set", "in"])
    sent.setlist("check_kind", ["number", "text", "text"])
    sent.setlist("check_value", [" 5 ", "", "a\r\nb"])
    sent.setlist("check_joiner", ["and", "and", "or"])
    form = DoneCheckForm.read(sent)
    assert form.done_check() == 'revenue >= 5 or apple["results"][0] in ["a", "b"]'
    assert form.sentence == (
        'The step counts as done, without running, if revenue is at least 5, or apple.results.0 is one of "a", "b".'
    )
    form.press("show", "text")
    again = DoneCheckForm.of_text(form.text)
    assert again.rows == [Condition("revenue", "least", "number", "5"), form.rows[2]]


@pytest.mark.parametrize(
    "row",
    [
        Condition("", "is", "text", "x"),
        Condition("class", "set"),
        Condition("a b", "set"),
        Condition("a", "least", "number", "five"),
        Condition("a", "in", "true"),
        Condition("a", "length", "text", "x"),
        Condition("a", "is", "result", "1"),
        Condition("a", "in", "number", "1\n"),
    ],
)
def test_row_without_text_has_a_reason(row):
    form = DoneCheckForm(rows=[row])
    assert row.problem and form.has_problems
    form.press("show", "text")
    assert form.mode == "parts"
