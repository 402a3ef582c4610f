"""Values that settings are made of: keys made for a single machine, mail, PostgreSQL's options, limits of tools.

Keys are made once, in a file only their owner can read. Mail goes where one URL says: `console:`, `file:FOLDER`,
`smtp://…` or `smtps://…`, each with `?from=`; `smtp` speaks STARTTLS unless `?tls=off`, `smtps` is encrypted from the
start.

A connection to PostgreSQL is opened so that nothing waits without end for a lost process. A process may freeze, or its
host lose power, inside a transaction. The server then ends that transaction by itself, and whoever waits for a row of
it is told that the lock was not to be had, long before a lease is over.
"""

import base64
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured


def _text_key() -> str:
    return secrets.token_urlsafe(48)


def _secret_key() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


KEY_GENERATORS: dict[str, Callable[[], str]] = {
    "SECRET_KEY": _text_key,
    "TOOLGATE_AUDIT_KEY": _text_key,
    "TOOLGATE_SECRET_KEYS": _secret_key,
}


def load_or_create_keys(path: Path) -> dict[str, str]:
    """Return the keys stored in `path`, first making the file (mode 0600) when it is missing, and keys it lacks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _write_once(path, "".join(f"{name}={make()}\n" for name, make in KEY_GENERATORS.items()))
    found = _read_keys(path.read_text(encoding="utf-8"))
    return found if found.keys() >= KEY_GENERATORS.keys() else _add_missing_keys(path)


def _read_keys(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _add_missing_keys(path: Path) -> dict[str, str]:
    """Add the keys that a file of an earlier version lacks; of several processes the first one does."""
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        missing = [f"{name}={make()}\n" for name, make in KEY_GENERATORS.items() if name not in _read_keys(text)]
        added = ("" if text.endswith("\n") or not text else "\n") + "".join(missing)
        file.write(added if missing else "")
        return _read_keys(text + added)


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


MAIL_BACKENDS = {"console": "console", "file": "filebased", "smtp": "smtp", "smtps": "smtp"}
MAIL_PORTS = {"smtp": 587, "smtps": 465}
MAIL_OPTIONS = frozenset({"from", "tls"})


class MailSettings(NamedTuple):
    """How mail leaves: what Django's settings of the same names take."""

    backend: str
    sender: str
    host: str
    port: int
    user: str
    password: str
    use_tls: bool
    use_ssl: bool
    folder: str


def read_email_url(text: str) -> MailSettings:
    """Return what a mail URL means. Raises ImproperlyConfigured, without repeating a password."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise _mail_url_error("its host or port cannot be read") from None
    options = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    _validate_mail_url(url, options)
    return MailSettings(
        backend=f"django.core.mail.backends.{MAIL_BACKENDS[url.scheme]}.EmailBackend",
        sender=options.get("from", "toolgate@localhost"),
        host=url.hostname or "",
        port=port or MAIL_PORTS.get(url.scheme, 0),
        user=unquote(url.username or ""),
        password=unquote(url.password or ""),
        use_tls=url.scheme == "smtp" and options.get("tls") != "off",
        use_ssl=url.scheme == "smtps",
        folder=unquote(url.path) if url.scheme == "file" else "",
    )


def _validate_mail_url(url: SplitResult, options: dict[str, str]) -> None:
    if url.scheme not in MAIL_BACKENDS:
        raise _mail_url_error(f"it begins with none of {', '.join(f'{scheme}:' for scheme in MAIL_BACKENDS)}")
    if url.scheme in MAIL_PORTS and not url.hostname:
        raise _mail_url_error("it names no host")
    if url.scheme == "file" and not url.path:
        raise _mail_url_error("it names no folder")
    if unknown := sorted(options.keys() - MAIL_OPTIONS):
        raise _mail_url_error(f"it has unknown options: {', '.join(unknown)}")
    if options.get("tls", "off") != "off" or ("tls" in options and url.scheme != "smtp"):
        raise _mail_url_error("tls can only be off, and only for smtp")
    if any(character in options.get("from", "") for character in "\r\n"):
        raise _mail_url_error("its sender has more than one line")


def _mail_url_error(why: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"TOOLGATE_EMAIL_URL cannot be used: {why}. Write it as smtp://user:password@host:587.")


LOCK_SECONDS = 5
"""How long a statement waits for a lock; who may wait longer tries again (`catalog.core.transactions`)."""
IDLE_SECONDS = 15
"""After which the server ends a transaction that says nothing. Nothing else is done while one is open, so that ours say
something within milliseconds; shorter than five waits for a lock, and than a lease lasts."""
CONNECT_SECONDS = 5
DEAD_PEER_SECONDS = 20
"""After which either side gives a peer up that acknowledges nothing."""

SESSION_PARAMETERS: Mapping[str, str] = {
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}


def postgresql_options(given: Mapping[str, Any], *, connections: int) -> dict[str, Any]:
    """Return the OPTIONS of a database: what its URL gives (`sslmode`, a setting by `options`) comes before ours."""
    sessions = " ".join(f"-c {name}={value}" for name, value in SESSION_PARAMETERS.items())
    return {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": DEAD_PEER_SECONDS * 1000,
        **given,
        "options": f"{sessions} {given.get('options', '')}".strip(),
        "server_side_binding": True,
        "prepare_threshold": 2,
        "pool": {
            "min_size": 2,
            "max_size": connections,
            "timeout": 10,
            # Left alone it tries less and less often while the database is away, and is late when that is back.
            "reconnect_timeout": 3,
        },
    }


EVERY_TOOL = "*"
TOOL_LIMIT_PATTERN = re.compile(r"(?:([A-Za-z0-9_-]{1,64})=)?([0-9]{1,5})")


def read_tool_limits(text: str) -> dict[str, int]:
    """Return tool → limit out of "4,send_mail=1": a bare number is for every other tool, kept under "*"; 0 is none.

    Raises ImproperlyConfigured.
    """
    limits: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = TOOL_LIMIT_PATTERN.fullmatch(part)
        name = (found[1] or EVERY_TOOL) if found else ""
        if found is None or name in limits:
            raise ImproperlyConfigured(
                "TOOLGATE_MAX_RUNNING_PER_TOOL must be a number, tool=number pairs, or both, each once: 4,send_mail=1."
            )
        limits[name] = int(found[2])
    return limits if any(limits.values()) else {}
