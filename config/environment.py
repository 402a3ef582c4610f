"""Values of settings: generated keys, mail URL, PostgreSQL options, tool limits.

A process may freeze or lose power inside a transaction. PostgreSQL then ends it, and statements waiting for one of its
rows fail with a lock timeout, long before a lease expires.
"""

import base64
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.exceptions import ImproperlyConfigured


def _text_key() -> str:
    return secrets.token_urlsafe(48)


def _bytes_key() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


KEY_GENERATORS: dict[str, Callable[[], str]] = {
    "SECRET_KEY": _text_key,
    "TOOLGATE_AUDIT_KEY": _text_key,
    "TOOLGATE_SECRET_KEYS": _bytes_key,
    "TOOLGATE_VAPID_KEY": _bytes_key,
}


def load_or_create_keys(path: Path) -> dict[str, str]:
    """Return the keys stored in `path`, first creating the file (mode 0600) and missing keys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _write_once(path, "".join(f"{name}={make()}\n" for name, make in KEY_GENERATORS.items()))
    found = _read_keys(path.read_text(encoding="utf-8"))
    if found.keys() >= KEY_GENERATORS.keys():
        return found
    # The file of an earlier version lacks keys; the first of several processes adds them.
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        missing = [f"{name}={make()}\n" for name, make in KEY_GENERATORS.items() if name not in _read_keys(text)]
        added = ("" if text.endswith("\n") or not text else "\n") + "".join(missing)
        file.write(added if missing else "")
        return _read_keys(text + added)


def _read_keys(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def check_secret_keys(keys: Sequence[str]) -> list[str]:
    """Return the encryption keys for secrets. Raises ImproperlyConfigured naming an invalid key."""
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


def check_vapid_key(key: str) -> str:
    """Return the private key that signs web pushes, or an empty text. Raises ImproperlyConfigured."""
    try:
        data = base64.b64decode(key + "=" * (-len(key) % 4), altchars=b"-_", validate=True)
        if data:
            ec.derive_private_key(int.from_bytes(data), ec.SECP256R1())
    except ValueError:
        data = b"invalid"
    if len(data) not in (0, 32):
        raise ImproperlyConfigured("TOOLGATE_VAPID_KEY must be a private key of P-256: 32 bytes in URL-safe base64.")
    return key


def _write_once(path: Path, text: str) -> None:
    """Write a complete file under another name and link it, so that only the first of several processes succeeds."""
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
    """Settings for outgoing mail: the values for Django's EMAIL_… settings."""

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
    """Return the settings in a mail URL. Raises ImproperlyConfigured, without repeating a password."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise _mail_url_error("its host or port is invalid") from None
    options = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    if url.scheme not in MAIL_BACKENDS:
        raise _mail_url_error(f"it must begin with one of {', '.join(f'{scheme}:' for scheme in MAIL_BACKENDS)}")
    if url.scheme in MAIL_PORTS and not url.hostname:
        raise _mail_url_error("it has no host")
    if url.scheme == "file" and not url.path:
        raise _mail_url_error("it has no folder")
    if unknown := sorted(options.keys() - MAIL_OPTIONS):
        raise _mail_url_error(f"it has unknown options: {', '.join(unknown)}")
    if options.get("tls", "off") != "off" or ("tls" in options and url.scheme != "smtp"):
        raise _mail_url_error("tls can only be off, and only for smtp")
    if any(character in options.get("from", "") for character in "\r\n"):
        raise _mail_url_error("its sender must be a single line")
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


def _mail_url_error(why: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"TOOLGATE_EMAIL_URL is invalid: {why}. Example: smtp://user:password@host:587.")


LOCK_SECONDS = 5
"""Lock timeout of a statement; work that may wait longer is retried (`catalog.core.transactions`)."""
IDLE_SECONDS = 15
"""Time after which the server ends an idle transaction; Toolgate's are never idle for more than milliseconds.

Shorter than five lock waits, and than a lease.
"""
CONNECT_SECONDS = 5
DEAD_PEER_SECONDS = 20
"""Time after which either side gives up an unresponsive peer."""

SESSION_PARAMETERS: Mapping[str, str] = {
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}


def postgresql_options(given: Mapping[str, Any], *, connections: int) -> dict[str, Any]:
    """Return the OPTIONS of a database; options given in its URL, such as `sslmode`, take precedence."""
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
            # By default attempts become less and less frequent while the database is unavailable, and reconnecting is
            # late.
            "reconnect_timeout": 3,
        },
    }


EVERY_TOOL = "*"
TOOL_LIMIT_PATTERN = re.compile(r"(?:([A-Za-z0-9_-]{1,64})=)?([0-9]{1,5})")


def read_tool_limits(text: str) -> dict[str, int]:
    """Parse "4,send_mail=1" to limits by tool. A bare number is for all other tools, under "*"; 0 means no limit.

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
