"""Migrations that were landed are never rewritten."""

from pathlib import Path

import pytest

from tests.house.kept_migrations import LIST, add_new, faults
from tests.house.source import ROOT, write

FIRST, SECOND = "plans/migrations/0001_initial.py", "catalog/connections/migrations/0002_more.py"


def test_migrations_are_kept() -> None:
    assert faults(ROOT) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository with two migrations, which are listed."""
    for path in (FIRST, SECOND):
        write(tmp_path, path, "operations = []\n")
        write(tmp_path, str(Path(path).with_name("__init__.py")), "")
    (tmp_path / LIST).parent.mkdir(parents=True)
    add_new(tmp_path)
    return tmp_path


def test_a_rewritten_migration_is_found(tree: Path) -> None:
    """Listing again does not help."""
    assert faults(tree) == []
    write(tree, SECOND, "operations = [1]\n")
    add_new(tree)
    assert [fault.split()[0] for fault in faults(tree)] == [SECOND]


def test_a_removed_migration_is_found(tree: Path) -> None:
    (tree / FIRST).unlink()
    add_new(tree)
    assert [fault.split()[0] for fault in faults(tree)] == [FIRST]


def test_a_new_migration_must_be_listed(tree: Path) -> None:
    new = "plans/migrations/0002_new.py"
    write(tree, new, "operations = []\n")
    assert [fault.split()[0] for fault in faults(tree)] == [new]
    add_new(tree)
    assert faults(tree) == []
