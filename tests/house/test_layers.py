"""Layer rule for imports by string, which import-linter does not see."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source import PRODUCT, ROOT, modules, parse, where, write

ABOVE = {
    "catalog": {"approvals", "plans", "config"},
    "approvals": {"plans", "config"},
    "plans": {"config"},
    "config": set[str](),
}
LOADERS = {"import_module", "import_string", "get_model", "ForeignKey", "OneToOneField", "ManyToManyField"}


def names_in_strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string that a call imports, or makes a relation to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in LOADERS:
            texts = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            yield from ((node.lineno, text) for text in texts if isinstance(text, str))


def upward_names(root: Path) -> list[str]:
    """Return every such string that names a higher layer."""
    found = []
    for path in modules(root, *PRODUCT):
        above = ABOVE[path.relative_to(root).parts[0]]
        for line, name in names_in_strings(parse(path)):
            if name.split(".")[0] in above:
                found.append(f"{where(root, path, line)} names {name}")
    return found


def test_no_string_names_a_higher_layer() -> None:
    assert upward_names(ROOT) == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("catalog/a.py", "call = ForeignKey('approvals.Grant')"),
        ("approvals/a.py", "importlib.import_module('plans.engine.loop')"),
        ("plans/a.py", "import_string('config.settings')"),
    ],
)
def test_an_upward_name_is_found(tmp_path: Path, path: str, code: str) -> None:
    write(tmp_path, path, code)
    assert len(upward_names(tmp_path)) == 1


def test_a_downward_name_passes(tmp_path: Path) -> None:
    write(tmp_path, "plans/a.py", "get_model('approvals.Grant')\nkind = 'config.a'")
    assert upward_names(tmp_path) == []
