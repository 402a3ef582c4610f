"""Settings for reaching an upstream, with secrets decrypted, and their checks."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, urlsplit

from django.conf import settings

from catalog.calls.vault import keyring
from catalog.core.canonical_json import canonical_text, digest
from catalog.core.egress import RequestNotSent, check_url
from catalog.errors import ToolgateError, field_error
from catalog.models import Source
from catalog.secrets.placeholders import Secret
from catalog.secrets.scrubber import Scrubber
from catalog.sources.selection import check_only

SOURCE_NAME = re.compile(r"[a-z0-9_-]{1,40}")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
QUERY_NAME = re.compile(r"[!-~]{1,100}")
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
ALLOWED_VARIABLES = (
    *("API_KEY", "*_API_KEY", "*_ACCESS_KEY", "*_ACCESS_KEY_ID", "*_TOKEN", "*_SECRET", "*_PASSWORD", "*_USERNAME"),
    *("*_CLIENT_ID", "*_ACCOUNT_ID", "*_PROJECT_ID", "*_ORG_ID", "*_TEAM_ID", "*_TENANT_ID", "*_WORKSPACE_ID"),
)
"""Environment variables that pages and REST may set for a program: credentials, which no runtime takes for code."""
RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "cookie2"}
)
RESERVED_SOURCES = frozenset({"http"})
MAX_VALUES, MAX_VALUE, MAX_ARGUMENTS, MAX_DOCUMENT = 50, 8192, 50, 20 * 1024 * 1024
MASK = "••••"
SECRETS = ("headers", "query", "env")
"""Fields of a source whose values are stored encrypted, each a mapping of names to values."""
OTHER_ORIGIN = "Enter the headers and the query again: stored values are not sent to another server."
PLAIN_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
"""Headers whose values are no credentials."""
MAX_ERROR_TEXT = 2_000
"""Limit in characters of an upstream's error, cut after its credentials were masked."""
MIN_CREDENTIAL = 8
"""Characters of the shortest value that is searched for in texts: shorter ones are settings rather than credentials."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """Settings for reaching an upstream.

    `headers`, `query` and `env` are secret, so `repr()` omits them. The parameters in `query` are sent with each call
    of an operation. `switched_at` is when the source was last enabled or disabled; older connections are not used.
    """

    pk: int
    name: str
    kind: str
    url: str = ""
    api_origin: str = ""
    command: tuple[str, ...] = ()
    timeout: float = 30.0
    trusted: bool = False
    switched_at: datetime | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    def secrets(self) -> list[list[tuple[str, str]]]:
        """Return names and values of all secrets, to find out whether any has changed."""
        return [sorted(each.items()) for each in (self.headers, self.query, self.env)]

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the upstream's identity: kind, URL, command and names of the secrets."""
        names = [sorted(self.headers), sorted(self.env), *([sorted(self.query)] if self.query else [])]
        return digest(canonical_text([self.kind, self.url, list(self.command), *names]))


def settings_of(source: Source) -> UpstreamSettings:
    secrets = read_secrets(source)
    return UpstreamSettings(
        pk=source.pk,
        name=source.name,
        kind=str(source.kind),
        url=source.url,
        api_origin=source.api_origin,
        command=tuple(source.command),
        timeout=float(source.timeout),
        trusted=source.trusted,
        switched_at=source.switched_at,
        headers=secrets["headers"],
        query=secrets["query"],
        env=secrets["env"],
    )


def origin_of(url: str) -> str:
    """Return scheme, host and any port of a URL; empty for an empty URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower() if url else ""


def scrubber_of(settings: UpstreamSettings, headers: Mapping[str, str] | None = None) -> Scrubber:
    """Return a scrubber that finds an upstream's credentials in texts. `headers` are extra headers of a single tool.

    A header's credential is also found without its scheme, such as `Bearer`. A variable with the path of a file or
    folder is no credential, because a program names such paths in its results.
    """
    sent = [*settings.headers.items(), *(headers or {}).items()]
    stored = [(name, value) for name, value in sent if name.lower() not in PLAIN_HEADERS]
    stored += [(name, value.rpartition(" ")[2]) for name, value in stored]
    stored += settings.query.items()
    stored += [
        (name, quote(value, safe="")) for name, value in settings.query.items() if quote(value, safe="") != value
    ]
    # Path.exists() raises for a value that is too long for a path.
    stored += [(name, value) for name, value in settings.env.items() if value[:1] != "/" or not os.path.exists(value)]  # noqa: PTH110
    return Scrubber(Secret(name, "", value, "") for name, value in stored if len(value) >= MIN_CREDENTIAL)


@contextmanager
def scrubbed_errors(scrubber: Scrubber) -> Iterator[None]:
    """Mask credentials in the message of an error that the body raises, and cut it to MAX_ERROR_TEXT."""
    try:
        yield
    except ToolgateError as error:
        error.message = scrubber.text(error.message)[:MAX_ERROR_TEXT]
        error.args = (error.message,)
        raise


def read_secrets(source: Source) -> dict[str, dict[str, str]]:
    stored = json.loads(keyring().decrypt(source.secrets)) if source.secrets else {}
    return {name: stored.get(name, {}) for name in SECRETS}


def encrypt_secrets(secrets: Mapping[str, Mapping[str, str]]) -> str:
    return (
        keyring().encrypt(json.dumps({name: dict(secrets[name]) for name in SECRETS})) if any(secrets.values()) else ""
    )


def masked(values: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(values, MASK)


def unmasked(field_name: str, given: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """Return `given` with its masks replaced by stored values. Raises ParameterError if none is stored for a mask."""
    result = {}
    for name, value in given.items():
        if value == MASK:
            if name not in stored:
                raise field_error(f"{field_name}.{name}", "invalid", "Enter a value: none is stored under this name.")
            value = stored[name]
        result[name] = value
    return result


def check_values(field_name: str, values: Mapping[str, Any], pattern: re.Pattern[str]) -> None:
    """Raise ParameterError unless names and values are valid as headers, query parameters or variables."""
    if len(values) > MAX_VALUES:
        raise field_error(field_name, "too_many", f"At most {MAX_VALUES} entries are accepted.")
    for name, value in values.items():
        place = f"{field_name}.{name}"
        is_reserved = pattern is HEADER_NAME and name.lower() in RESERVED_HEADERS
        if not pattern.fullmatch(name) or is_reserved:
            raise field_error(place, "invalid", f"The {_KINDS_OF_NAMES[pattern]} {name[:100]} cannot be set.")
        if not isinstance(value, str) or len(value) > MAX_VALUE or not all(" " <= each != "\x7f" for each in value):
            raise field_error(place, "invalid", f"A value is one line of at most {MAX_VALUE:,} characters.")
        if pattern is HEADER_NAME and (not value.isascii() or value != value.strip()):
            raise field_error(place, "invalid", "A header's value is ASCII, without white space at its ends.")


_KINDS_OF_NAMES = {HEADER_NAME: "header", QUERY_NAME: "query parameter", ENVIRONMENT_NAME: "variable"}


def allowed_variables() -> tuple[str, ...]:
    """Return the patterns of the environment variables that pages and REST may set for a program."""
    return (*ALLOWED_VARIABLES, *settings.TOOLGATE_STDIO_ENVIRONMENT)


def check_program_environment(env: Mapping[str, str]) -> None:
    """Raise ParameterError for a variable that is not allowed: many can make a listed program run other code."""
    for name in env:
        if not any(fnmatchcase(name.upper(), pattern.upper()) for pattern in allowed_variables()):
            message = (
                f"{name} is not among the variables that may be set here. Add its name to TOOLGATE_STDIO_ENVIRONMENT "
                "if it cannot make the program run other code."
            )
            raise field_error(f"env.{name}", "not_allowed", message)


def check_address(field_name: str, url: str) -> None:
    """Raise ParameterError unless requests may be sent to a URL like this. Does not resolve its host."""
    try:
        check_url(url)
    except RequestNotSent as error:
        raise field_error(field_name, "invalid", str(error)) from None


def check_source(values: Mapping[str, Any]) -> None:
    """Raise ParameterError if a field of a source is invalid, or if fields contradict each other."""
    if not SOURCE_NAME.fullmatch(values["name"]) or values["name"] in RESERVED_SOURCES:
        raise field_error(
            "name", "invalid", "Use 1 to 40 characters from a-z, 0-9, '_' and '-'. The name 'http' is reserved."
        )
    check_values("headers", values.get("headers", {}), HEADER_NAME)
    check_values("query", values.get("query", {}), QUERY_NAME)
    check_values("env", values.get("env", {}), ENVIRONMENT_NAME)
    if not 1 <= values.get("timeout", 30) <= 300:
        raise field_error("timeout", "invalid", "A timeout is 1 to 300 seconds.")
    for name in ("url", "base_url"):
        if values.get(name):
            check_address(name, values[name])
    if values["kind"] == "mcp":
        _check_mcp(values)
        return
    if bool(values.get("url")) == bool(values.get("document")):
        raise field_error("url", "invalid", "Give the document itself or its URL.")
    if len(values.get("document") or "") > MAX_DOCUMENT:
        raise field_error("document", "too_large", f"A document has at most {MAX_DOCUMENT:,} characters.")
    if "\0" in (values.get("document") or ""):  # PostgreSQL cannot store it
        raise field_error("document", "invalid", "The document contains the character NUL. Save it as UTF-8 text.")
    check_only(values.get("only") or {})
    _refuse(values, "command")
    _refuse(values, "env")


def _check_mcp(values: Mapping[str, Any]) -> None:
    command = values.get("command") or []
    if bool(values.get("url")) == bool(command):
        raise field_error("url", "invalid", "An MCP server has either a URL or a command.")
    if len(command) > MAX_ARGUMENTS or not all(
        isinstance(each, str) and 0 < len(each) <= MAX_VALUE and each.isprintable() for each in command
    ):
        raise field_error("command", "invalid", f"A command is a list of at most {MAX_ARGUMENTS} single-line strings.")
    for name in ("document", "base_url", "only", "query"):
        if values.get(name):
            raise field_error(name, "invalid", "This field does not apply to MCP servers.")
    _refuse(values, "env" if values.get("url") else "headers")


def _refuse(values: Mapping[str, Any], name: str) -> None:
    if values.get(name):
        raise field_error(name, "invalid", "This field does not apply to this source.")
