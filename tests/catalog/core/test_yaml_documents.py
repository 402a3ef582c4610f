"""YAML documents become values of JSON's types, within budgets."""

import math

import pytest
import yaml

from catalog.core import yaml_documents
from catalog.core.yaml_documents import MAX_ALIASES, parse_yaml, write_yaml, yaml_lines
from catalog.errors import MalformedJSON
from tests.corpus import faults

VALUES = [
    ("NO", "NO"), ("no", "no"), ("on", "on"), ("Off", "Off"), ("y", "y"), ("YES", "YES"),
    ("1:30", "1:30"), ("2026-11-26", "2026-11-26"), ("1_000", "1_000"), ("0b11", "0b11"), ("=", "="),
    ("true", True), ("False", False), ("null", None), ("~", None), ("", None), ("'null'", "null"), ('"1"', "1"),
    ("7", 7), ("-7", -7), ("+7", 7), ("010", 10), ("0o10", 8), ("0x1F", 31), ("9" * 30, int("9" * 30)),
    ("1.0", 1.0), ("1e3", 1000.0), (".5", 0.5), ("-.INF", -math.inf), ("1.", 1.0), (".", "."), ("1e", "1e"),
    ("9" * 5000, "9" * 5000), ("0x" + "f" * 5000, "0x" + "f" * 5000),
    ("!!str 7", "7"), ("!!int '7'", 7), ("!!timestamp 2026-11-26", "2026-11-26"),
    ("|\n  a\n  b\n", "a\nb\n"), ("[a, 1]", ["a", 1]), ("{a: {b: }}", {"a": {"b": None}}),
]  # fmt: skip


def test_values_have_the_types_of_the_core_schema():
    def check(text, value):
        found = parse_yaml(f"value: {text}")
        assert isinstance(found, dict) and found["value"] == value and type(found["value"]) is type(value)

    assert faults(check, VALUES) == {}


def test_keys_are_texts_as_written():
    text = "200: a\non: b\nnull: c\n1.10: d\n0x1F: e\n? true\n: f"
    assert parse_yaml(text) == {"200": "a", "on": "b", "null": "c", "1.10": "d", "0x1F": "e", "true": "f"}


def test_aliases_and_merge_keys_repeat_values():
    text = """
a: &a {x: 1, y: 1}
b: &b {y: 2, z: 2}
&k c: *a
d: {<<: *a, y: 3}
e: {y: 4, <<: [*b, *a]}
*k : {"<<": 5}
"""
    both = parse_yaml(text, allow_duplicate_keys=True)
    assert both == {
        "a": {"x": 1, "y": 1},
        "b": {"y": 2, "z": 2},
        "c": {"<<": 5},
        "d": {"x": 1, "y": 3},
        "e": {"x": 1, "y": 4, "z": 2},
    }


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
TOWER = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 70))
REFUSED = [
    (BOMB, "values"),
    (MERGES, "values"),
    (TOWER, "deeper"),
    ("a: &a x\nb: [" + "*a, " * (MAX_ALIASES + 1) + "]", "aliases"),
    ("a: &a [*a]", "inside"),
    ("a: *b", "no anchor"),
    ("[" * 100_000, "deeper"),
    ("a: 1\n'a': 2", "twice"),
    ("[a]: 1", "not a text"),
    ("a: !Ref b", "!Ref"),
    ("a: !!int b", "!!int"),
    ("a: !!binary aGk=", "!!binary"),
    ("a: !!python/object/apply:os.system [ls]", "!!python"),
    ("a: !<tag:example.org,2026:x> {}", "tag:example.org"),
    ("a: 1\n---\nb: 2", "second document"),
    ("{<<: 1}", "merge"),
    ("a: b: c", "mapping values"),
    ("a: 'b", "quoted scalar"),
    ("a: \x00", "control characters"),
    ("a: \ud800", "surrogate"),
]


def test_document_that_cannot_be_read_is_refused_in_words():
    def check(text, words):
        with pytest.raises(MalformedJSON, match=words) as refused:
            parse_yaml(text)
        assert refused.value.code == "invalid_yaml" and len(refused.value.message) < 300

    assert faults(check, REFUSED) == {}


def test_refusal_names_line_and_column():
    with pytest.raises(MalformedJSON) as refused:
        parse_yaml("a: 1\nb:\n  c: !x 2")
    assert (refused.value.line, refused.value.column) == (3, 6)


def test_number_of_values_has_a_limit(monkeypatch):
    monkeypatch.setattr(yaml_documents, "MAX_VALUES", 10)
    parse_yaml("a: [1, 2, 3, 4, 5, 6, 7]")
    with pytest.raises(MalformedJSON, match="10 values"):
        parse_yaml("a: [1, 2, 3, 4, 5, 6, 7, 8]")


TEXTS = [
    "", " ", "a", "NO", "null", "~", "1", "1e3", "0x1F", ".5", "- a", "a: b", "# a", "a #b", "'", '"', "\\", "|",
    "%a", "@a",
    "a\nb", "a\nb\n", "\n", "\n\na\n\n", "  a\n b", "a \nb", "a\tb", "a\r\nb", "\x00\x1b", "\ufeffa", "\u2028",
    "\x85",
    "${a.b}", "$${a}", "{a}", "<<", "=", "2026-11-26", "12:30", "مرحبا", "👩‍👩‍👧", "x" * 500,
    "word " * 100, "---\na", "...",
]  # fmt: skip


def test_written_yaml_is_read_as_the_same_value():
    def check(text, other):
        value = {text: text, "list": [text, {"deep": [[text]]}], "numbers": [1, -2.5, 1e300, 1e-7, True, None, [], {}]}
        written = write_yaml(value)
        read = parse_yaml(written)
        assert isinstance(read, dict) and read == value and list(read) == list(value)
        assert yaml.safe_load(written) == value  # readers of YAML 1.1

    assert faults(check, [(text, None) for text in TEXTS]) == {}


def test_lines_of_values():
    found = dict(yaml_lines("goal: x\nsteps:\n  - step_id: 1\n    tool: a\n  - step_id: 2\n"))
    assert (found["goal"], found["steps"], found["steps.0.tool"], found["steps.1"]) == (1, 2, 4, 5)
