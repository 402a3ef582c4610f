"""Statuses change in two modules only, by conditional UPDATE; a new row may be created with one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source import PRODUCT, ROOT, modules, parse, strings, where, write

WRITERS = {"catalog/core/transactions.py", "plans/store/statements.py"}
SQL = re.compile(r"\bUPDATE\b.*?\bSET\b(?:(?!\bWHERE\b).)*?\bstatus\W{0,2}\s*=", re.IGNORECASE | re.DOTALL)
WRITING_METHODS = {"update", "aupdate", "update_or_create", "aupdate_or_create"}
NAMING_METHODS = {"save", "asave", "bulk_update", "abulk_update", "setattr", "bulk_create", "abulk_create"}


def names_status(node: ast.AST) -> bool:
    """Return whether a literal anywhere below is the word status."""
    return any(isinstance(leaf, ast.Constant) and leaf.value == "status" for leaf in ast.walk(node))


def calls(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of calls that write a status through the ORM."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        by_keyword = name in WRITING_METHODS and (
            "status" in keywords or any(names_status(keywords[k]) for k in keywords if k and "defaults" in k)
        )
        if by_keyword or (name in NAMING_METHODS and any(map(names_status, [*node.args, *keywords.values()]))):
            yield node.lineno


def assignments(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that set an attribute `status`; an object's own, at birth, is not a move."""
    births = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
    born = {id(node) for birth in births for node in ast.walk(birth)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        if node.attr == "status" and id(node) not in born:
            yield node.lineno


def strays(root: Path) -> list[str]:
    """Return every place outside the two writers that moves a status."""
    found = []
    for path in modules(root, *PRODUCT):
        if path.relative_to(root).as_posix() in WRITERS:
            continue
        tree = parse(path)
        sql = (line for line, text in strings(tree) if SQL.search(text))
        found += [where(root, path, line) for line in sorted({*calls(tree), *assignments(tree), *sql})]
    return found


def test_two_modules_write_statuses() -> None:
    assert strays(ROOT) == []


@pytest.mark.parametrize(
    "code",
    [
        "Call.objects.filter(pk=1).update(status='running')",
        "Call.objects.update_or_create(pk=1, defaults={'status': 'held'})",
        "Call.objects.bulk_update(calls, ['status'])",
        "call.save(update_fields=('status', 'result'))",
        "setattr(call, 'status', 'failed')",
        "call.status = 'failed'",
        "call.status, call.result = 'failed', None",
        "cursor.execute('UPDATE catalog_call SET status = %s WHERE id = %s')",
        "cursor.execute(f'UPDATE {table} SET fence = fence + 1, \"status\"=%s')",
    ],
)
def test_a_stray_write_is_found(tmp_path: Path, code: str) -> None:
    write(tmp_path, "catalog/core/transactions.py", code)
    assert strays(tmp_path) == []
    write(tmp_path, "plans/engine/loop.py", code)
    assert strays(tmp_path) == ["plans/engine/loop.py:1"]


@pytest.mark.parametrize(
    "code",
    [
        "Call.objects.create(status='held')",
        "Call.objects.filter(status='held').update(result=None)",
        "cursor.execute('UPDATE catalog_call SET fence = 2 WHERE status = %s')",
        "class Problem:\n    def __init__(self, status):\n        self.status = status",
    ],
)
def test_reading_and_creation_pass(tmp_path: Path, code: str) -> None:
    write(tmp_path, "plans/engine/loop.py", code)
    assert strays(tmp_path) == []
