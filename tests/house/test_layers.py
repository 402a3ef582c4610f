"""plans → approvals → catalog, never upward; config composes; the product never imports its tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source import PRODUCT, ROOT, modules, parse, where, write

MAY_IMPORT = {
    "catalog": {"catalog"},
    "approvals": {"approvals", "catalog"},
    "plans": {"plans", "approvals", "catalog"},
    "config": {"config", "plans", "approvals", "catalog"},
}
OURS = {*PRODUCT, "tests", "benchmarks", "conftest"}
FOR_TESTS_ONLY = "catalog.testing"
LOADERS = {"import_module", "import_string", "get_model", "ForeignKey", "OneToOneField", "ManyToManyField"}


def imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import; relative ones are resolved against `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}".lstrip(".")) for alias in node.names)


def loaded(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of what is imported, or related to, by its name in a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in LOADERS:
            texts = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            yield from ((node.lineno, text) for text in texts if isinstance(text, str))


def wrong_arrows(root: Path) -> list[str]:
    """Return every import that points upward."""
    found = []
    for path in modules(root, *PRODUCT):
        parts = path.relative_to(root).parts
        tree, layer = parse(path), parts[0]
        above = OURS - MAY_IMPORT[layer]
        for line, name in [*imports(tree, parts[:-1]), *loaded(tree)]:
            if name.split(".")[0] in above or name.startswith(FOR_TESTS_ONLY):
                found.append(f"{where(root, path, line)} imports {name}")
    return found


def test_every_import_points_downward() -> None:
    """The layers hold."""
    assert wrong_arrows(ROOT) == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("catalog/a.py", "import plans"),
        ("catalog/a.py", "from approvals import gate"),
        ("catalog/runners/a.py", "from ...plans import engine"),
        ("catalog/a.py", "def late():\n    from plans.models import Plan"),
        ("catalog/a.py", "call = ForeignKey('approvals.Grant')"),
        ("approvals/a.py", "from plans.models import Plan"),
        ("approvals/a.py", "importlib.import_module('plans.engine')"),
        ("plans/a.py", "from config import settings"),
        ("plans/a.py", "from catalog.testing import invoke"),
        ("config/a.py", "from tests import builders"),
    ],
)
def test_an_upward_import_is_found(tmp_path: Path, path: str, code: str) -> None:
    """The rule can fail."""
    write(tmp_path, path, code)
    assert len(wrong_arrows(tmp_path)) == 1


def test_downward_and_relative_imports_pass(tmp_path: Path) -> None:
    """The rule does not cry wolf."""
    write(tmp_path, "plans/a.py", "from approvals.gate import gate\nfrom . import spec\nimport catalog.tools")
    write(tmp_path, "catalog/runners/a.py", "from .. import tools\nkind = 'plan.created'")
    assert wrong_arrows(tmp_path) == []
