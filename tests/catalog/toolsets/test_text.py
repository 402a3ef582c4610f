"""Text templates: plain replacement and number formats."""

import pytest

from catalog.testing import invoke
from catalog.toolsets.text import render_text
from tests.corpus import faults


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("Hello {name}.", {"name": "Ada"}, "Hello Ada."),
        ("{n:,} and {n}", {"n": 394328}, "394,328 and 394328"),
        ("{x:.1f} {x:+.2f} {x:.1%}", {"x": 0.0779}, "0.1 +0.08 7.8%"),
        ("{{literal}} {a}", {"a": 1}, "{literal} 1"),
        ("{a}", {"a": "{b}"}, "{b}"),
        ("{a}|{b}|{c}", {"a": None, "b": True, "c": {"k": ["é"]}}, '|true|{"k": ["é"]}'),
        ("nothing", {}, "nothing"),
    ],
)
def test_placeholders_are_replaced(template, values, text):
    assert invoke(render_text, {"template": template, "values": values}).value == text


def test_invalid_template_names_its_fault():
    cases = [
        ("{missing}", {"a": 1}, "'missing'"),
        ("{", {}, "character 1"),
        ("a}", {}, "character 2"),
        ("{a.__class__}", {"a": 1}, "does not belong to"),
        ("{a[0]}", {"a": [1]}, "does not belong to"),
        ("{a!r}", {"a": 1}, "does not belong to"),
        ("{}", {}, "does not belong to"),
        ("{a:>999999}", {"a": 1}, "not a number format"),
        ("{a:x}", {"a": 1}, "not a number format"),
        ("{a:,}", {"a": "text"}, "as a number"),
        ("{a:,}", {"a": True}, "as a number"),
        ("{a:d}", {"a": 1.5}, "whole number"),
        ("{a:.2d}", {"a": 1}, "does not fit"),
    ]

    def check(template, values, complaint):
        result = invoke(render_text, {"template": template, "values": values})

        assert not result.success and complaint in result.message

    assert faults(check, cases) == {}


def test_a_text_that_grows_too_large_is_refused():
    result = invoke(render_text, {"template": "{a}" * 20_000, "values": {"a": "x" * 200_000}})

    assert "more than 262,144 characters" in result.message
