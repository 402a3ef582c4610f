"""Checks of settings that are surely wrong or unsafe. Each raises ImproperlyConfigured, which names the remedy."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

PREFIX = "TOOLGATE_"
FOR_TESTS = ("TOOLGATE_TEST_", "TOOLGATE_REQUIRE_", "TOOLGATE_NIGHTLY")
NEAR = 2
"""Letters by which a misspelt name differs from the one that was meant."""
FEWEST_CHARACTERS = 6
"""Different characters in a key: one letter repeated protects nothing."""


def check_key(name: str, value: str, *, least: int) -> None:
    """Require a key of at least `least` characters that are not the same few over and over."""
    if len(value) < least:
        raise ImproperlyConfigured(f"{name} must have at least {least} characters.")
    if len(set(value)) < FEWEST_CHARACTERS:
        raise ImproperlyConfigured(f"{name} repeats the same few characters; use random ones.")


def check_url(name: str, value: str) -> None:
    """Require an address with scheme and host, such as https://toolgate.example."""
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ImproperlyConfigured(f"{name} must be an address with its scheme, such as https://toolgate.example.")


def check_hosts(hosts: Iterable[str]) -> None:
    """Refuse hosts that stand for everybody's: `*`, and a whole top-level domain such as `.com`."""
    for host in hosts:
        if host == "*" or (host.startswith(".") and "." not in host.strip(".")):
            raise ImproperlyConfigured(f"ALLOWED_HOSTS must name hosts: {host} is refused when DEBUG is off.")


def check_workspace(workspace: Path, kept: Iterable[Path]) -> None:
    """Refuse a workspace in which tools could read or write the database, the keys or the checkpoints."""
    root = workspace.resolve()
    for path in kept:
        if path.resolve().is_relative_to(root):
            raise ImproperlyConfigured(
                f"TOOLGATE_WORKSPACE must not contain {path}: tools read and write all that is in it."
            )


def check_names(given: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the names of ours that no setting has; refuse one that is a setting's but for a letter or two."""
    settings = set(known)
    unknown = sorted(name for name in given if name.startswith(PREFIX) and name not in settings)
    for name in unknown:
        meant = min(settings, key=lambda setting: (distance(name, setting), setting))
        if distance(name, meant) <= NEAR:
            raise ImproperlyConfigured(f"There is no setting {name}; {meant} was probably meant.")
    return [name for name in unknown if not name.startswith(FOR_TESTS)]


def distance(one: str, other: str) -> int:
    """Return how many letters must be added, removed or replaced to turn one name into the other (Levenshtein)."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for column, wanted in enumerate(other, 1):
            kept = before + (letter != wanted)
            before = row[column]
            row[column] = min(row[column] + 1, row[column - 1] + 1, kept)
    return row[-1]
