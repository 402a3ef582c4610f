"""A fragment on the wire is a file one can open; no template carries script, style or unescaped text.

A fragment opens with a comment that names its variables and its callers, and has one root element with an id;
where it stands inside other markup its comment says that it is inline.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.house.markup import COMMENT, elements, header
from tests.house.source import PRODUCT, ROOT, modules, parse, templates, where, write

VARIABLES = re.compile(r"\bvariables?:", re.IGNORECASE)
CALLERS = re.compile(r"\b(callers?:|(called|included|sent|used) by)(?P<names>.*)", re.IGNORECASE | re.DOTALL)
TEMPLATE = re.compile(r"[\w-]+\.html")
UNESCAPED = re.compile(r"\|\s*safe(seq)?\b|\{%\s*autoescape\s+off")
UNESCAPERS = {"mark_safe", "SafeString", "SafeText"}


def header_faults(text: str) -> list[str]:
    """Return what is wrong with how a fragment opens and stands."""
    says, found, faults = header(text), elements(text), []
    if not VARIABLES.search(says) or not CALLERS.search(says):
        faults.append("opens with no comment that names its variables and callers")
    alone = len(found.roots) == 1 and "id" in found.roots[0][1] and not found.loose_text
    if not alone and "inline" not in says.lower():
        faults.append("has no single root with an id, and does not say that it is inline")
    return faults


def stale_callers(root: Path, fragment: Path) -> list[str]:
    """Return a fault for each template that the opening comment names as a caller and that calls no more."""
    match = CALLERS.search(header(fragment.read_text(encoding="utf-8")))
    named = set(TEMPLATE.findall(match["names"])) if match else set()
    callers = {p.name for p in templates(root) if fragment.name in uncommented(p)}
    return [f"names {name}, which does not include it" for name in sorted(named - callers)]


def uncommented(path: Path) -> str:
    """Return the template without its comments: what it really includes."""
    return COMMENT.sub("", path.read_text(encoding="utf-8"))


def content_faults(text: str) -> list[str]:
    """Return what a strict content policy, or a hostile value, would trip over."""
    faults = ["turns escaping off"] if UNESCAPED.search(text) else []
    for tag, attributes in elements(text).every:
        if tag == "style" or (tag == "script" and "src" not in attributes):
            faults.append(f"holds an inline <{tag}>")
        inline = [name for name in attributes if name == "style" or name.startswith(("on", "hx-on"))]
        urls = [name for name, value in attributes.items() if (value or "").strip().startswith("javascript:")]
        faults += [f"holds the attribute {name} on <{tag}>" for name in inline + urls]
    return faults


def template_faults(root: Path) -> list[str]:
    """Return every template that breaks a rule, with the rule."""
    found = []
    for path in templates(root):
        text = path.read_text(encoding="utf-8")
        faults = content_faults(text)
        if path.name.startswith("_"):
            faults += header_faults(text) + stale_callers(root, path)
        found += [f"{where(root, path)} {fault}" for fault in faults]
    return found


def unescapers(root: Path) -> list[str]:
    """Return every place in the code that declares text to be safe markup."""
    found = []
    for path in modules(root, *PRODUCT):
        for node in ast.walk(parse(path)):
            name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
            if name in UNESCAPERS:
                found.append(where(root, path, getattr(node, "lineno", 1)))
    return found


def test_templates_keep_the_rules() -> None:
    """Every template, and every fragment."""
    assert template_faults(ROOT) == []


def test_no_code_declares_text_to_be_safe() -> None:
    """What agents write is data."""
    assert unescapers(ROOT) == []


GOOD = "{% comment %}Variables: step. Callers: plan.html, feed.{% endcomment %}\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD + '{% load x %}<li id="step-{{ step.pk }}">{% if a %}<br>{{ b }}{% endif %}<img src="a"></li>',
        GOOD.replace("feed.", "feed; inline.") + "<b>{{ step }}</b> of {{ count }}",
        GOOD + '<p id="a"><script src="app.js" defer></script></p>',
    ],
)
def test_a_good_fragment_passes(tmp_path: Path, text: str) -> None:
    """The rules do not cry wolf."""
    write(tmp_path, "templates/plans/_step.html", text)
    write(tmp_path, "templates/plans/plan.html", "{% include 'plans/_step.html' %}")
    assert template_faults(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        '<li id="a"></li>',
        '{% load x %}{% comment %}Variables: a. Callers: b.{% endcomment %}<li id="a"></li>',
        '{% comment %}A step.{% endcomment %}<li id="a"></li>',
        GOOD + "<li></li>",
        GOOD + '<li id="a"></li><li id="b"></li>',
        GOOD + '<li id="a"></li> and more',
        GOOD + '<li id="a" style="color: red"></li>',
        GOOD + '<li id="a" onclick="go()"></li>',
        GOOD + '<li id="a" hx-on:click="go()"></li>',
        GOOD + '<li id="a"><a href="javascript:go()">go</a></li>',
        GOOD + '<li id="a"><script>go()</script></li>',
        GOOD + '<li id="a"><style>li {}</style></li>',
        GOOD + '<li id="a">{{ step|safe }}</li>',
        GOOD + '<li id="a">{% autoescape off %}{{ step }}{% endautoescape %}</li>',
    ],
)
def test_a_bad_fragment_is_found(tmp_path: Path, text: str) -> None:
    """Every rule can fail, and alone."""
    write(tmp_path, "templates/plans/_step.html", text)
    write(tmp_path, "templates/plans/plan.html", "{% include 'plans/_step.html' %}")
    assert len(template_faults(tmp_path)) == 1


def test_a_caller_that_calls_no_more_is_found(tmp_path: Path) -> None:
    """A mention in a comment is no call."""
    write(tmp_path, "templates/plans/_step.html", GOOD + '<li id="a"></li>')
    write(tmp_path, "templates/plans/plan.html", "{% comment %}_step.html{% endcomment %}")
    assert template_faults(tmp_path) == ["templates/plans/_step.html:1 names plan.html, which does not include it"]


@pytest.mark.parametrize(
    "code",
    ["from django.utils.safestring import mark_safe", "safestring.mark_safe(text)", "SafeString(text)"],
)
def test_safe_markup_in_code_is_found(tmp_path: Path, code: str) -> None:
    """The rule can fail."""
    write(tmp_path, "plans/views.py", code)
    assert unescapers(tmp_path) == ["plans/views.py:1"]
