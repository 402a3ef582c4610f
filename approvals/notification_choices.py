"""How a person wants to be told: read for their page, changed by their form. Addresses are kept encrypted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import time
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from approvals.addresses import MAIL, read_address
from approvals.models import Delivery, NotificationChoice
from catalog.access import ADMINISTRATOR, NotAllowed, has_role
from catalog.errors import ParameterError
from catalog.facts import record
from catalog.retries import retried

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_ADDRESSES = 5
SHOWN = 50


@dataclass(frozen=True, slots=True)
class ChoicePage:
    """What a person's page shows: the choice, their addresses without secrets, and what they were sent last."""

    choice: NotificationChoice
    addresses: Sequence[str]
    sends_mail: bool
    mail: str
    sent: Sequence[Delivery]


def choice_of(person: "User") -> NotificationChoice:
    """Return what a person chose, or what everyone has who chose nothing; that is not stored."""
    return NotificationChoice.objects.filter(person=person).first() or NotificationChoice(person=person)


def choice_page(person: "User") -> ChoicePage:
    """Return what the page of a person's notifications shows."""
    choice = choice_of(person)
    shown = [str(kept["shown"]) for kept in choice.addresses]
    sent = Delivery.objects.filter(person=person).select_related("request").order_by("-pk")[:SHOWN]
    return ChoicePage(choice, shown, settings.TOOLGATE_SENDS_MAIL, person.email, list(sent))


@retried
def change_choice(person: "User", form: Mapping[str, Any], removed: Sequence[str]) -> None:
    """Store what a form says; `removed` are the positions of addresses to be given up. Raises ParameterError."""
    with transaction.atomic():
        NotificationChoice.objects.get_or_create(person=person)  # of two first forms at once, neither fails
        choice = NotificationChoice.objects.select_for_update().get(person=person)
        before = _told_at(choice)
        choice.by_mail = bool(form.get("by_mail"))
        choice.quiet_from, choice.quiet_until = _hours(form)
        choice.time_zone = _zone(str(form.get("time_zone", "")).strip() or "UTC")
        choice.addresses = _addresses(choice, str(form.get("address", "")).strip(), removed)
        choice.save()
        _tell(person, before, _told_at(choice))


def _addresses(choice: NotificationChoice, text: str, removed: Sequence[str]) -> list[dict[str, str]]:
    kept = [each for number, each in enumerate(choice.addresses) if str(number) not in removed]
    if text:
        kept.append(read_address(text).kept())
    if len(kept) > MOST_ADDRESSES:
        raise _refused("address", f"You have {MOST_ADDRESSES} addresses at most: give one up first.")
    return kept


def _told_at(choice: NotificationChoice) -> dict[str, str]:
    """Return the channels that reach a person, by what tells them apart."""
    account = {MAIL: MAIL} if choice.by_mail else {}
    return account | {each["ciphertext"]: each["channel"] for each in choice.addresses}


def _tell(person: "User", before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Keep in the audit log that someone is told elsewhere from now on: through which channels, never where."""
    if before == after:
        return
    added = sorted(after[key] for key in after.keys() - before.keys())
    removed = sorted(before[key] for key in before.keys() - after.keys())
    username = person.get_username()
    record("notifications.changed", by=person, notifications=username, added=added, removed=removed)


def _hours(form: Mapping[str, Any]) -> tuple[time | None, time | None]:
    begin, end = (_hour(str(form.get(name, "")).strip(), name) for name in ("quiet_from", "quiet_until"))
    if (begin is None) != (end is None):
        raise _refused("quiet_from", "Quiet hours have a beginning and an end: fill in both, or neither.")
    return begin, end


def _hour(text: str, name: str) -> time | None:
    if not text:
        return None
    try:
        return time.fromisoformat(text).replace(tzinfo=None, second=0, microsecond=0)
    except ValueError:
        raise _refused(name, "Write a time such as 22:00.") from None


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):  # unknown, no name at all, a folder
        raise _refused("time_zone", "Write a time zone such as Europe/Berlin.") from None
    return text


def _refused(path: str, message: str) -> ParameterError:
    return ParameterError(message, {"errors": [{"path": path, "code": "invalid", "message": message}]})


def deliveries_for(viewer: "User", status: str = "", before: int | None = None) -> QuerySet[Delivery]:
    """Return what was sent to whom, newest first. Raises NotAllowed for who is no administrator."""
    if not has_role(viewer, ADMINISTRATOR):
        raise NotAllowed("Only administrators read the log of deliveries.")
    found = Delivery.objects.select_related("person", "request").order_by("-pk")
    if status in Delivery.Status.values:
        found = found.filter(status=status)
    return found.filter(pk__lt=before) if before is not None else found
