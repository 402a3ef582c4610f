"""Introspection tools: no live values, no side effects of evaluation."""

import sys
from typing import Any

import pytest

from catalog.testing import invoke
from catalog.tools import Tool
from catalog.toolsets.introspection import apropos_search, describe_symbol, eval_form, function_arglist
from tests.corpus import faults


def value_of(tool: Tool[Any, Any], arguments: dict[str, Any]) -> Any:
    return invoke(tool, arguments).value


@pytest.mark.parametrize(
    ("symbol", "kind", "words"),
    [
        ("json", "module", "JSON"),
        ("json.dumps", "function", "Serialize"),
        ("os.path.join", "function", "Join"),
        ("urllib.parse.quote", "function", "quote"),
        ("xml.dom.minidom.Node", "class", "NodeType"),
        ("dict.get", "function", "Return the value"),
        ("ValueError", "exception", "Inappropriate"),
        ("datetime.date.fromisoformat", "function", "date"),
    ],
)
def test_a_symbol_is_described(symbol, kind, words):
    described = value_of(describe_symbol, {"symbol": symbol})

    assert described["kind"] == kind
    assert words.casefold() in described["documentation"].casefold()


def test_live_values_are_never_shown(monkeypatch):
    monkeypatch.setenv("TOOLGATE_PROBE", "very-secret")

    described = value_of(describe_symbol, {"symbol": "os.environ"})

    assert described["kind"] == "value"
    assert "very-secret" not in str(described) and "TOOLGATE_PROBE" not in str(described)


def test_symbol_outside_the_standard_library_is_refused():
    cases = [
        *("antigravity", "this", "idlelib.idle", "turtledemo", "json.__main__", "__main__", "django.conf.settings"),
        *("catalog.tools", "_thread", "json.nothing", "a b", "", "..", "json.", "os.system('x')", "a." * 20 + "b"),
    ]

    def check(symbol):
        assert not invoke(describe_symbol, {"symbol": symbol}).success
        assert not {"antigravity", "this", "idlelib", "turtledemo"} & set(sys.modules)

    assert faults(check, cases) == {}


def test_names_are_found_by_a_part_of_them():
    everywhere = value_of(apropos_search, {"query": "DUMP"})
    inside = value_of(apropos_search, {"query": "enc", "module": "json"})

    assert "json.dumps" in [match["symbol"] for match in everywhere["results"]]
    assert [match["symbol"] for match in inside["results"]] == ["json.JSONEncoder"]
    assert len(value_of(apropos_search, {"query": "er"})["results"]) == 100
    assert not invoke(apropos_search, {"query": "x", "module": "json"}).success
    assert not invoke(apropos_search, {"query": "run", "module": "django"}).success


def test_arguments_are_listed():
    assert value_of(function_arglist, {"symbol": "re.sub"})["arguments"].startswith("(pattern, repl, string")
    assert not invoke(function_arglist, {"symbol": "sys.path"}).success


def test_expressions_have_values():
    cases = [
        ("(394328 - 365817) / 365817 * 100", 7.7937876041846055),
        ("round(7.7937, 2)", 7.79),
        ("round(2.5)", 2),
        ("max(1, 2) + min([3, 4]) + sum([1, 2]) + len('abc') + abs(-1)", 12),
        ("{'a': [1, 2]}['a'][1]", 2),
        ("'ab' + 'cd'", "abcd"),
        ("[1] + [2]", [1, 2]),
        ("1 < 2 <= 2 and not False", True),
        ("'x' if 3 in (1, 2) else 'y'", "y"),
        ("-7 // 2 % 5 + 2 ** 10", 1025),
        ("None is None", True),
        ("sorted([2, 1])", [1, 2]),
    ]

    def check(form, value):
        assert value_of(eval_form, {"form": form}) == value

    assert faults(check, cases) == {}


HOSTILE = [
    *("__import__('os')", "open('/etc/passwd')", "().__class__", "'a'.format(1)", "f'{1}'", "lambda: 1", "(x := 1)"),
    *("[x for x in (1, 2)]", "x", "len", "print(1)", "max(1, key=len)", "max(*[1, 2])", "1; 2", "import os"),
    *("9 ** 9 ** 9", "2 ** 101", "10 ** 30 * 10", "1e400", "1e30 * 1e30", "-1e31", "(-8) ** 0.5"),
    *("'a' * 10 ** 9", "[0] * 10 ** 9", "'%1000000000d' % 1", "round(1, -10 ** 9)", "int('9' * 400)"),
    *("1 / 0", "[1][5]", "{}['a']", "1 + 'a'", "b'x'", "1j", "...", "", "(", "-" * 30 + "1", "[" * 200),
    *("sum([[1], [2]])", "int('x')", "float('nan')", "sorted([1, 'a'])", "{[]: 1}", "'\x00'", "1 if 2"),
]


def test_form_that_is_no_expression_is_refused():
    def check(form):
        result = invoke(eval_form, {"form": form})

        assert not result.success and "unknown" not in result.message
        assert "execution failed" not in result.message

    assert faults(check, HOSTILE) == {}
