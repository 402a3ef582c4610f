"""Folders of this installation: where its code and what ships with it are, and where its data is kept."""

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("approvals", "catalog", "config", "plans", "toolgate")
CODE_DIR = Path(__file__).resolve().parent.parent
"""The checkout, or the folder of the environment into which a wheel was installed."""
_PACKAGED = CODE_DIR / "config" / "packaged"
IS_INSTALLED = _PACKAGED.is_dir()
"""True if this code came from a wheel, which has templates, static files and guides inside `config`."""
SHIPPED_DIR = _PACKAGED if IS_INSTALLED else CODE_DIR
"""The folder that has `templates`, `static` and `docs`."""


def command_start(python: str, code_dir: Path, *, is_installed: bool) -> str:
    """Return the beginning of a command line that runs one of our commands, given the Python that runs now.

    A checkout's own environment is named, because a Python that is found by its name may lack Django.
    """
    if is_installed:
        return "toolgate"
    if (path := Path(python)).is_relative_to(code_dir):
        return f"{shlex.quote(str(path.relative_to(code_dir)))} manage.py"
    return "python manage.py"


COMMAND = command_start(sys.executable, CODE_DIR, is_installed=IS_INSTALLED)
"""The beginning of a command line, typed in the checkout, that runs one of our commands."""


def home_dir() -> Path:
    """Return the folder of `.env`: TOOLGATE_HOME; by default the checkout, or the user's folder for data."""
    named = os.environ.get("TOOLGATE_HOME", "")
    if named:
        return Path(named).expanduser().absolute()
    if not IS_INSTALLED:
        return CODE_DIR
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "toolgate"
    return Path(os.environ.get("XDG_DATA_HOME", "") or Path.home() / ".local" / "share").absolute() / "toolgate"


def data_dir() -> Path:
    """Return the folder of the SQLite database, the keys and the workspace; in a checkout its folder `var`."""
    home = home_dir()
    return home / "var" if home == CODE_DIR else home


def foreign_packages() -> dict[str, str]:
    """Return our packages that Python would import from elsewhere, and where from; an empty text if it has none."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin != CODE_DIR / name / "__init__.py":
            found[name] = str(origin.parent) if origin is not None else ""
    return found


def refusal() -> str:
    """Return why this installation must not start: others' packages have the names of ours. Empty if all are ours."""
    foreign = foreign_packages()
    if not foreign:
        return ""
    found = "; ".join(f"{name} {f'comes from {path}' if path else 'is missing'}" for name, path in foreign.items())
    return (
        f"Toolgate does not start, because packages that it needs are not its own: {found}. Install it into an "
        "environment of its own, where no other package has these names: with uvx, pipx, or pip in a new virtual "
        "environment. PYTHONPATH must not lead to them either."
    )
