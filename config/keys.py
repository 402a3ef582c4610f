"""Keys that a single-machine installation makes for itself, once, in a file only its owner can read."""

import base64
import fcntl
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured


def _text_key() -> str:
    return secrets.token_urlsafe(48)


def _secret_key() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


GENERATED: dict[str, Callable[[], str]] = {
    "SECRET_KEY": _text_key,
    "TOOLGATE_AUDIT_KEY": _text_key,
    "TOOLGATE_SECRET_KEYS": _secret_key,
}


def load_or_make(path: Path) -> dict[str, str]:
    """Return the keys stored in `path`, first making the file (mode 0600) when it is missing, and keys it lacks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _write_once(path, "".join(f"{name}={make()}\n" for name, make in GENERATED.items()))
    found = _read(path.read_text(encoding="utf-8"))
    return found if found.keys() >= GENERATED.keys() else _complete(path)


def _read(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _complete(path: Path) -> dict[str, str]:
    """Add the keys that a file of an earlier version lacks; of several processes the first one does."""
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        missing = [f"{name}={make()}\n" for name, make in GENERATED.items() if name not in _read(text)]
        added = ("" if text.endswith("\n") or not text else "\n") + "".join(missing)
        file.write(added if missing else "")
        return _read(text + added)


def check_secret_keys(keys: Sequence[str]) -> list[str]:
    """Return the keys that secrets are kept with; raise ImproperlyConfigured naming the one that is none."""
    if not keys:
        raise ImproperlyConfigured(
            "TOOLGATE_SECRET_KEYS must name at least one key. Make one with: python -c "
            "'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"
        )
    for number, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError:
            raise ImproperlyConfigured(
                f"TOOLGATE_SECRET_KEYS: key {number} of {len(keys)} is not 32 bytes in URL-safe base64 (44 characters)."
            ) from None
    return list(keys)


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
