"""Checks of settings that are invalid or unsafe. Each raises ImproperlyConfigured naming the remedy."""

import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured

ROLE_NAMES = ("viewer", "operator", "reviewer", "administrator")
SETTING_PREFIX = "TOOLGATE_"
TEST_PREFIXES = ("TOOLGATE_TEST_", "TOOLGATE_REQUIRE_", "TOOLGATE_NIGHTLY")
MAX_TYPO_DISTANCE = 2
"""Maximum edit distance between a misspelt name and the intended one."""
MIN_DISTINCT_CHARACTERS = 6
"""Minimum number of different characters in a key."""


def check_key(name: str, value: str, *, least: int) -> None:
    """Require a key of at least `least` characters that does not merely repeat a few characters."""
    if len(value) < least:
        raise ImproperlyConfigured(f"{name} must have at least {least} characters.")
    if len(set(value)) < MIN_DISTINCT_CHARACTERS:
        raise ImproperlyConfigured(f"{name} repeats the same few characters. Use random ones.")


def check_url_setting(name: str, value: str) -> None:
    """Require the URL of a whole host, such as https://toolgate.example: scheme, host and at most a port."""
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or any(each.isspace() for each in value):
        raise ImproperlyConfigured(f"{name} must be a URL with its scheme, such as https://toolgate.example.")
    if f"{parts.scheme}://{parts.netloc}" != value or "@" in parts.netloc:
        raise ImproperlyConfigured(
            f"{name} must end after host and port, such as https://toolgate.example: Toolgate is served from the root "
            "of a host name of its own, not under a path."
        )


def check_time_zone(name: str) -> str:
    """Return the name of a time zone, such as Europe/Berlin."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown name, malformed name, a directory of zones
        raise ImproperlyConfigured("TOOLGATE_TIME_ZONE must be a time zone such as Europe/Berlin.") from None
    return name


def check_hosts(hosts: Iterable[str]) -> None:
    """Refuse wildcard hosts: `*`, and an entire top-level domain such as `.com`."""
    for host in hosts:
        if host == "*" or (host.startswith(".") and "." not in host.strip(".")):
            raise ImproperlyConfigured(f"ALLOWED_HOSTS must list host names: {host} is not allowed unless DEBUG is on.")


def check_workspace(workspace: Path, kept: Iterable[Path]) -> None:
    """Refuse a workspace in which tools could read or write the database, the keys or the checkpoints."""
    root = workspace.resolve()
    for path in kept:
        if path.resolve().is_relative_to(root):
            raise ImproperlyConfigured(
                f"TOOLGATE_WORKSPACE must not contain {path}, because tools can read and write everything in it."
            )


def check_variable_patterns(patterns: Iterable[str]) -> list[str]:
    """Return the patterns of TOOLGATE_STDIO_ENVIRONMENT. Refuses a pattern that fits no name, or fits every name."""
    found = [pattern.strip() for pattern in patterns if pattern.strip()]
    for pattern in found:
        if not re.fullmatch(r"[A-Za-z0-9_*]+", pattern) or not pattern.strip("*_"):
            raise ImproperlyConfigured(
                f"TOOLGATE_STDIO_ENVIRONMENT must list names such as WIKI_URL or ACME_*, not {pattern}."
            )
    return found


def check_roles(name: str, roles: Iterable[str]) -> list[str]:
    """Return the roles in a setting. Refuses a name that is no role."""
    found = [role.strip() for role in roles if role.strip()]
    for role in found:
        if role not in ROLE_NAMES:
            raise ImproperlyConfigured(f"{name} must list roles ({', '.join(ROLE_NAMES)}), not {role}.")
    return found


def check_sso(issuer: str, client_id: str) -> None:
    """Require an issuer over HTTPS, or on this machine, a client, and the packages of the extra `sso`."""
    parts = urlsplit(issuer)
    is_local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or parts.query or parts.fragment or not (parts.scheme == "https" or is_local):
        raise ImproperlyConfigured("TOOLGATE_SSO_ISSUER must be an address such as https://login.example.org/realm.")
    if not client_id:
        raise ImproperlyConfigured("TOOLGATE_SSO_ISSUER needs TOOLGATE_SSO_CLIENT_ID, and usually a secret.")
    if any(find_spec(name) is None for name in ("requests", "jwt")):
        raise ImproperlyConfigured("TOOLGATE_SSO_ISSUER needs the extra sso: pip install 'toolgate[sso]'.")


def read_group_map(pairs: Iterable[str]) -> dict[str, str]:
    """Return our groups by values of the provider, of pairs such as `team-ops=operator`."""
    found = {}
    for pair in filter(None, map(str.strip, pairs)):
        value, mark, group = (part.strip() for part in pair.rpartition("="))
        if not mark or not value or not group:
            raise ImproperlyConfigured(f"TOOLGATE_SSO_GROUPS must list pairs such as team-ops=operator, not {pair}.")
        found[value] = group
    return found


def check_setting_names(given: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return unknown names with Toolgate's prefix. Raises ImproperlyConfigured for a name that is probably misspelt."""
    settings = set(known)
    unknown = sorted(name for name in given if name.startswith(SETTING_PREFIX) and name not in settings)
    for name in unknown:
        meant = min(settings, key=lambda setting: (edit_distance(name, setting), setting))
        if edit_distance(name, meant) <= MAX_TYPO_DISTANCE:
            raise ImproperlyConfigured(f"Unknown setting {name}. Did you mean {meant}?")
    return [name for name in unknown if not name.startswith(TEST_PREFIXES)]


def edit_distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for column, other_letter in enumerate(other, 1):
            kept = before + (letter != other_letter)
            before = row[column]
            row[column] = min(row[column] + 1, row[column - 1] + 1, kept)
    return row[-1]
