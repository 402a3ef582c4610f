"""Digests of the migrations, which are never rewritten: databases have applied them as they are.

`python -m tests.house.kept_migrations` adds those of new migrations to the list and changes none. A migration that only
its author has applied can be listed anew: remove its line first.
"""

import hashlib
from pathlib import Path

from tests.house.source import PRODUCT, ROOT, files

LIST = "tests/house/migrations.sha256"


def digests(root: Path) -> dict[str, str]:
    """Return the digest of each migration, by path."""
    found = (path for app in PRODUCT for path in files(root / app, "[0-9]*.py") if path.parent.name == "migrations")
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def listed(root: Path) -> dict[str, str]:
    """Return the digests in the list, by path. The list has the form of `sha256sum`."""
    lines = (root / LIST).read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def faults(root: Path) -> list[str]:
    """Return the migrations that were rewritten or removed, and those that the list lacks."""
    found, kept = digests(root), listed(root)
    rewritten = [f"{path} was rewritten: add a migration instead" for path in kept if found.get(path) != kept[path]]
    unlisted = [f"{path} is not in {LIST}: run this module" for path in found.keys() - kept.keys()]
    return [*rewritten, *sorted(unlisted)]


def add_new(root: Path) -> None:
    """Add new migrations to the list."""
    kept = {**digests(root), **(listed(root) if (root / LIST).exists() else {})}
    (root / LIST).write_text("".join(f"{kept[path]}  {path}\n" for path in sorted(kept)), encoding="utf-8")


if __name__ == "__main__":
    add_new(ROOT)
