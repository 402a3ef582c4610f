"""Shared steps of the two import commands."""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from catalog.access.roles import ADMINISTRATOR, has_role
from catalog.errors import ToolgateError
from catalog.inventory.source_preview import preview_source
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source, update_source
from catalog.models import Source

MAX_PROBLEMS = 20


def add_keep_argument(parser: CommandParser) -> None:
    parser.add_argument("--keep", action="store_true", help="store the source even if it cannot be read now")


def administrator(username: str | None) -> User:
    """Return the administrator with this username; without a username, the first administrator. Raises CommandError."""
    people = User.objects.filter(is_active=True).order_by("pk")
    for person in people.filter(username=username) if username else people:
        if has_role(person, ADMINISTRATOR):
            return person
    if username:
        raise CommandError(f"{username} is not an active administrator.")
    raise CommandError("There is no administrator. Create one with createsuperuser.")


def import_source(values: Mapping[str, Any], *, by: User, keep: bool, write: Callable[[str], Any]) -> int:
    """Create or change a source, synchronise it and print what changed; return the exit status.

    The upstream is read first; nothing is stored if it offers no tools. `keep` skips this check. Raises CommandError.
    """
    known = Source.objects.filter(name=values["name"]).first()
    try:
        if not keep:
            preview = preview_source(values, by=by, any_command=True)
            if preview.problems and all(each.change == "removed" for each in preview.tools):
                problems = "\n".join(preview.problems[:MAX_PROBLEMS])
                raise CommandError(
                    f"{problems}\nNothing was stored. With --keep, the source is stored and tried again."
                )
        if known is None:
            source = create_source(values, by=by, any_command=True, is_claimed=True)
        else:
            source = update_source(known, values, by=by, any_command=True, is_claimed=True)
    except ToolgateError as error:
        problems = getattr(error, "details", {}).get("errors", [])
        raise CommandError(
            "; ".join(f"{each['path']}: {each['message']}" for each in problems) or error.message
        ) from None
    try:
        changes = sync_source(source)
    except ToolgateError as error:
        raise CommandError(
            f"{error.message} The source {source.name} is stored, and a running server tries it again every minute. "
            "Repeat the command to change it."
        ) from None
    for line in changes.lines():
        write(line)
    for problem in changes.problems:
        write(problem)
    counts = {"added": changes.added, "changed": changes.changed, "removed": changes.removed, "held": changes.drifted}
    write(f"{source.name}: " + ", ".join(f"{len(names)} {word}" for word, names in counts.items()))
    if not source.enabled:
        write(f"{source.name} is disabled: none of its tools can be called. Enable it on its page.")
    return 0
