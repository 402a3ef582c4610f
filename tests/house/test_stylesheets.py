"""Classes: each that a template writes is known to a stylesheet, and each of a stylesheet is written somewhere."""

import re
from pathlib import Path

from tests.house.source import PRODUCT, ROOT, files, modules, templates, write

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SELECTOR = re.compile(r"([^{};]+)\{")
CLASS = re.compile(r"\.(-?[_a-zA-Z][\w-]*)")
ATTRIBUTE = re.compile(r'\bclass="((?:\{\{.*?\}\}|\{%.*?%\}|[^"])*)"', re.DOTALL)
TAG = re.compile(r"\{%.*?%\}", re.DOTALL)
PARTLY_COMPUTED = re.compile(r"[\w-]*\{\{.*?\}\}[\w-]*", re.DOTALL)
WORD = re.compile(r"[a-zA-Z][\w-]*")
OF_LIBRARIES = {"htmx-request"}


def styled(root: Path) -> set[str]:
    """Return the classes in the selectors of all stylesheets."""
    sheets = (COMMENT.sub("", path.read_text(encoding="utf-8")) for path in files(root / "static", "*.css"))
    selectors = (each for sheet in sheets for each in SELECTOR.findall(sheet) if not each.lstrip().startswith("@"))
    return {name for selector in selectors for name in CLASS.findall(selector)}


def written(text: str) -> set[str]:
    """Return the classes that a template writes in full, whatever its branches."""
    values = (TAG.sub(" ", value) for value in ATTRIBUTE.findall(text))
    return {name for value in values for name in PARTLY_COMPUTED.sub(" ", value).split()}


def unknown_classes(root: Path) -> list[str]:
    """Return the classes of templates that no stylesheet knows."""
    known = styled(root)
    return [
        f"{path.name}: {name}"
        for path in templates(root)
        for name in sorted(written(path.read_text(encoding="utf-8")) - known)
    ]


def unused_classes(root: Path) -> list[str]:
    """Return the classes of stylesheets that no template, script or module names.

    A name that ends in a number may be computed.
    """
    sources = [*templates(root), *files(root / "static", "*.js"), *modules(root, *PRODUCT)]
    words = {word for path in sources for word in WORD.findall(path.read_text(encoding="utf-8"))} | OF_LIBRARIES
    return sorted(name for name in styled(root) if name not in words and name.rstrip("0123456789") not in words)


def test_classes_of_templates_are_known() -> None:
    assert unknown_classes(ROOT) == []


def test_classes_of_stylesheets_are_used() -> None:
    assert unused_classes(ROOT) == []


def test_class_without_a_counterpart_is_found(tmp_path: Path) -> None:
    write(
        tmp_path, "templates/_row.html", '<p class="row {% if x %}good{% else %}bad{% endif %} {{ y }} n-{{ z }}"></p>'
    )
    write(
        tmp_path,
        "static/row.css",
        "@layer x { .row:hover > .good, .n-3 { color: red } /* .bad */ .lost { top: 0.5px } }",
    )
    assert unknown_classes(tmp_path) == ["_row.html: bad"]
    assert unused_classes(tmp_path) == ["lost"]
