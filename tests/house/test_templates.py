"""Safe templates: no disabled escaping, no inline script or style, no text marked safe."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.markup import start_tags
from tests.house.source import PRODUCT, ROOT, modules, parse, templates, where, write

UNESCAPED = re.compile(r"\|\s*safe(seq)?\b|\{%\s*autoescape\s+off")
INDENTED = re.compile(r'\bclass="[^"]*\bverbatim\b[^"]*"[^<>]*>\s*\n')
ESCAPED_TWICE = re.compile(r"\|\s*join:[^|%}]*\|\s*revealed\b")
UNESCAPERS = {"mark_safe", "SafeString", "SafeText"}


def faults_of(text: str) -> list[str]:
    """Return what would break under the content security policy, or let a hostile value through."""
    faults = ["turns escaping off"] if UNESCAPED.search(text) else []
    if ESCAPED_TWICE.search(text):
        faults.append("escapes texts that `join` has escaped: use `joined`")
    if INDENTED.search(text):
        faults.append("begins a verbatim text with its own indentation")
    for tag, attributes in start_tags(text):
        if tag == "style" or (tag == "script" and "src" not in attributes):
            faults.append(f"holds an inline <{tag}>")
        inline = [name for name in attributes if name == "style" or name.startswith(("on", "hx-on"))]
        urls = [name for name, value in attributes.items() if (value or "").strip().startswith("javascript:")]
        faults += [f"holds the attribute {name} on <{tag}>" for name in inline + urls]
    return faults


def template_faults(root: Path) -> list[str]:
    """Return every template that breaks a rule, with the rule."""
    return [
        f"{where(root, path)} {fault}"
        for path in templates(root)
        for fault in faults_of(path.read_text(encoding="utf-8"))
    ]


def unescapers(root: Path) -> list[str]:
    """Return every place in the code that declares text to be safe markup."""
    found = []
    for path in modules(root, *PRODUCT):
        for node in ast.walk(parse(path)):
            name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
            if name in UNESCAPERS:
                found.append(where(root, path, getattr(node, "lineno", 1)))
    return found


def test_no_template_holds_inline_script_or_style_or_unescaped_text() -> None:
    assert template_faults(ROOT) == []


def test_no_code_marks_text_as_safe() -> None:
    assert unescapers(ROOT) == []


@pytest.mark.parametrize(
    "text",
    [
        '{% load x %}<li id="step-{{ step.pk }}">{% if a %}<br>{{ b }}{% endif %}<img src="a"></li>',
        "<b>{{ step }}</b> of {{ count }}",
        '<p><script src="app.js" defer></script></p>',
    ],
)
def test_a_good_template_passes(tmp_path: Path, text: str) -> None:
    write(tmp_path, "templates/plans/_step.html", text)
    assert template_faults(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        '<li style="color: red"></li>',
        '<li onclick="go()"></li>',
        '<li hx-on:click="go()"></li>',
        '<li><a href="javascript:go()">go</a></li>',
        "<li><script>go()</script></li>",
        '<li>{{ names|join:", "|revealed }}</li>',
        "<li><style>li {}</style></li>",
        "<li>{{ step|safe }}</li>",
        "<li>{% autoescape off %}{{ step }}{% endautoescape %}</li>",
        '<li class="break verbatim" id="a">\n  {{ step }}\n</li>',
    ],
)
def test_a_bad_template_is_found(tmp_path: Path, text: str) -> None:
    write(tmp_path, "templates/plans/_step.html", text)
    assert len(template_faults(tmp_path)) == 1


@pytest.mark.parametrize(
    "code",
    ["from django.utils.safestring import mark_safe", "safestring.mark_safe(text)", "SafeString(text)"],
)
def test_marking_text_as_safe_is_found(tmp_path: Path, code: str) -> None:
    write(tmp_path, "plans/web/plan/views.py", code)
    assert unescapers(tmp_path) == ["plans/web/plan/views.py:1"]
