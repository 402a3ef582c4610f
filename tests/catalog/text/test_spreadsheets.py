"""CSV that spreadsheets do not evaluate."""

from datetime import UTC, datetime

from catalog.text.spreadsheets import csv_text, escape_formula

CELLS = {
    "plain": "plain",
    "": "",
    "=1": "'=1",
    "+1": "'+1",
    "-1": "'-1",
    "@x": "'@x",
    "  =1": "'  =1",
    "\t=1": "'U+0009=1",
    "\r=1": "'U+000D=1",
    "a\nb": "aU+000Ab",
    "a\x00b\u202ec": "aU+0000bU+202Ec",
    "a=b": "a=b",
    "a;=1; @x": "a;'=1;' @x",
    "\uff1d1": "'\uff1d1",
}


def test_formulas_are_escaped():
    assert {text: escape_formula(text) for text in CELLS} == CELLS


def test_numbers_and_times_keep_their_types():
    moment = datetime(2026, 11, 28, 6, 5, tzinfo=UTC)
    assert csv_text([["=1", -4, None, moment]]) == "'=1,-4,,2026-11-28T06:05:00+00:00\r\n"
