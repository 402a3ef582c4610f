"""Where mail goes, read from one URL: `console:`, `file:FOLDER`, `smtp://…` or `smtps://…`, each with `?from=`.

`smtp` speaks STARTTLS unless `?tls=off`; `smtps` is encrypted from the start. Nothing here sends.
"""

from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

BACKENDS = {"console": "console", "file": "filebased", "smtp": "smtp", "smtps": "smtp"}
PORTS = {"smtp": 587, "smtps": 465}
KNOWN = frozenset({"from", "tls"})


class Mail(NamedTuple):
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


def read_email_url(text: str) -> Mail:
    """Return what a mail URL means. Raises ImproperlyConfigured, without repeating a password."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise _wrong("its host or port cannot be read") from None
    options = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    _judge(url, options)
    return Mail(
        backend=f"django.core.mail.backends.{BACKENDS[url.scheme]}.EmailBackend",
        sender=options.get("from", "toolgate@localhost"),
        host=url.hostname or "",
        port=port or PORTS.get(url.scheme, 0),
        user=unquote(url.username or ""),
        password=unquote(url.password or ""),
        use_tls=url.scheme == "smtp" and options.get("tls") != "off",
        use_ssl=url.scheme == "smtps",
        folder=unquote(url.path) if url.scheme == "file" else "",
    )


def _judge(url: SplitResult, options: dict[str, str]) -> None:
    if url.scheme not in BACKENDS:
        raise _wrong(f"it begins with none of {', '.join(f'{scheme}:' for scheme in BACKENDS)}")
    if url.scheme in PORTS and not url.hostname:
        raise _wrong("it names no host")
    if url.scheme == "file" and not url.path:
        raise _wrong("it names no folder")
    if unknown := sorted(options.keys() - KNOWN):
        raise _wrong(f"it has unknown options: {', '.join(unknown)}")
    if options.get("tls", "off") != "off" or ("tls" in options and url.scheme != "smtp"):
        raise _wrong("tls can only be off, and only for smtp")
    if any(character in options.get("from", "") for character in "\r\n"):
        raise _wrong("its sender has more than one line")


def _wrong(why: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"TOOLGATE_EMAIL_URL cannot be used: {why}. Write it as smtp://user:password@host:587.")
