"""Keys that a single-machine installation makes for itself, once, in a file only its owner can read."""

import os
import secrets
from pathlib import Path

GENERATED = ("SECRET_KEY", "TOOLGATE_AUDIT_KEY")


def load_or_make(path: Path) -> dict[str, str]:
    """Return the keys stored in `path`, first making the file (mode 0600) when it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _write_once(path, "".join(f"{name}={secrets.token_urlsafe(48)}\n" for name in GENERATED))
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _write_once(path: Path, text: str) -> None:
    """Write the whole file under another name and link it: the first of several processes wins."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text, encoding="utf-8")
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
