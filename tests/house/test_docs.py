"""The documentation contains every setting and every event type."""

import re
from pathlib import Path

import pytest

from plans.store.transactions import EVENT_TYPES
from tests.house.source import ROOT, files, settings_read, write


def documents(root: Path) -> str:
    """Return the text of README and docs."""
    found = [path for path in (root / "README.md", *files(root / "docs", "*.md")) if path.exists()]
    return "\n".join(path.read_text(encoding="utf-8") for path in found)


def undocumented(names: set[str], text: str) -> list[str]:
    """Return the names that stand nowhere in the documents as whole words."""
    return sorted(name for name in names if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text))


@pytest.mark.parametrize(
    ("names", "known"),
    [(settings_read(ROOT), {"SECRET_KEY", "TOOLGATE_WORKSPACE"}), (set(EVENT_TYPES), {"plan.created"})],
    ids=["settings", "events"],
)
def test_every_name_is_documented(names: set[str], known: set[str]) -> None:
    """Operators rely on documented settings, clients on documented event types."""
    assert known <= names
    assert undocumented(names, documents(ROOT)) == []


def test_settings_are_taken_from_the_code(tmp_path: Path) -> None:
    code = "A_KEY = env.str('A_KEY', '')\nB = env.int('OTHER_KEY', 3)\nenv.read_env('.env')"
    write(tmp_path, "config/settings.py", code)
    assert settings_read(tmp_path) == {"A_KEY", "OTHER_KEY"}


def test_a_missing_name_is_found(tmp_path: Path) -> None:
    write(tmp_path, "README.md", "`OTHER_KEY` and plan.created")
    write(tmp_path, "docs/events.md", "step.outcome_unknown")
    text = documents(tmp_path)
    assert undocumented({"OTHER_KEY", "plan.created", "step.outcome_unknown"}, text) == []
    assert undocumented({"KEY", "plan.create", "A_KEY"}, text) == ["A_KEY", "KEY", "plan.create"]
