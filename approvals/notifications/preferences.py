"""Notification preferences of users. Addresses are stored encrypted."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import time
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from approvals.messaging.addresses import MAIL, read_address
from approvals.models import Delivery, NotificationChoice
from catalog.access.personal_settings import change_settings
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import ParameterError, field_error
from catalog.signals import record_fact

MAX_ADDRESSES = 5
MAX_DELIVERIES_SHOWN = 50
MARK_LENGTH = 8
"""Length of the hash that distinguishes addresses with the same displayed text."""


@dataclass(frozen=True, slots=True)
class PreferencesPage:
    """Preferences of a user, their addresses without secrets, and their latest deliveries."""

    choice: NotificationChoice
    addresses: Sequence[str]
    mail_reaches: bool
    sends_mail: bool
    mail: str
    sent: Sequence[Delivery]


def stored_choice(person: User) -> NotificationChoice:
    """Return a user's stored preferences, or an unsaved row with the defaults."""
    return NotificationChoice.objects.filter(person=person).first() or NotificationChoice(person=person)


def preferences_page(person: User) -> PreferencesPage:
    choice = stored_choice(person)
    addresses = [str(kept["shown"]) for kept in choice.addresses]
    mail = (mail_reaches(person), settings.TOOLGATE_SENDS_MAIL, person.email)
    return PreferencesPage(choice, addresses, *mail, list(own_deliveries(person)[:MAX_DELIVERIES_SHOWN]))


def mail_reaches(person: User) -> bool:
    """Return True if the installation sends mail and the user has a mail address."""
    return bool(settings.TOOLGATE_SENDS_MAIL and person.email)


@contextmanager
def _saving_choice(person: User) -> Iterator[NotificationChoice]:
    """Lock a user's preferences for a `with` block; save them after it and record changed addresses."""
    with transaction.atomic():
        NotificationChoice.objects.get_or_create(person=person)  # two concurrent first changes must both succeed
        choice = NotificationChoice.objects.select_for_update().get(person=person)
        before = _channels_in_use(choice)
        yield choice
        choice.save()
        after = _channels_in_use(choice)
        if before != after:  # recorded without the addresses
            added = sorted(after[key] for key in after.keys() - before.keys())
            removed = sorted(before[key] for key in before.keys() - after.keys())
            username = person.get_username()
            record_fact("notifications.changed", by=person, notifications=username, added=added, removed=removed)


@retry_on_deadlock
def change_choice(person: User, form: Mapping[str, Any], removed: Sequence[str]) -> None:
    """Save the preferences form; `removed` are the positions of addresses to remove. Raises ParameterError."""
    with _saving_choice(person) as choice:
        if mail_reaches(person):
            choice.by_mail = bool(form.get("by_mail"))
        choice.quiet_from, choice.quiet_until = _hours(form)
        text = str(form.get("address", "")).strip()
        kept = [each for number, each in enumerate(choice.addresses) if str(number) not in removed]
        if text:
            kept.append(read_address(text).kept())
        if len(kept) > MAX_ADDRESSES:
            message = f"You can have at most {MAX_ADDRESSES} addresses. Remove one first."
            raise field_error("address", "invalid", message)
        choice.addresses = kept


def choice_for(person: User) -> NotificationChoice:
    """Return a user's own preferences. Raises NotAllowed for agent tokens, which get no notifications."""
    if agent_token_of(person) is not None:
        raise NotAllowed("Agent tokens get no notifications and may not read or change notification preferences.")
    return stored_choice(person)


@retry_on_deadlock
def set_choice(person: User, changes: Mapping[str, Any]) -> NotificationChoice:
    """Change the given preferences and return all of them. Raises NotAllowed and ParameterError.

    `addresses` replaces the list. It has new addresses in full, and labels from `addresses_by_label` for those to keep.
    """
    choice_for(person)
    with _saving_choice(person) as choice:
        choice.by_mail = changes.get("by_mail", choice.by_mail)
        if not changes.keys().isdisjoint(("quiet_from", "quiet_until")):
            kept = {"quiet_from": _format_time(choice.quiet_from), "quiet_until": _format_time(choice.quiet_until)}
            hours = {name: changes.get(name, text) or "" for name, text in kept.items()}
            choice.quiet_from, choice.quiet_until = _hours(hours)
        if "time_zone" in changes:
            change_settings(person, {"time_zone": changes["time_zone"]})
        if "addresses" in changes:
            known = addresses_by_label(choice)
            found: dict[str, dict[str, str]] = {}
            for number, text in enumerate(dict.fromkeys(changes["addresses"])):
                try:
                    found[text] = known.get(text) or read_address(text).kept()
                except ParameterError as error:
                    raise field_error(f"addresses.{number}", "invalid", error.message) from None
            choice.addresses = list(found.values())
    return choice


def _format_time(moment: time | None) -> str:
    return f"{moment:%H:%M}" if moment else ""


def addresses_by_label(choice: NotificationChoice) -> dict[str, dict[str, str]]:
    """Return a user's stored addresses by label: the displayed text, plus a hash unless it is a mail address."""
    found = {}
    for each in choice.addresses:
        is_mail, ciphertext = each["channel"] == MAIL, each["ciphertext"].encode()
        mark = "" if is_mail else hashlib.sha256(ciphertext).hexdigest()[:MARK_LENGTH]
        found[f"{each['shown']}{mark}"] = each
    return found


def _channels_in_use(choice: NotificationChoice) -> dict[str, str]:
    """Return the channels of a user's addresses, by ciphertext."""
    account = {MAIL: MAIL} if choice.by_mail else {}
    return account | {each["ciphertext"]: each["channel"] for each in choice.addresses}


def _hours(form: Mapping[str, Any]) -> tuple[time | None, time | None]:
    hours: list[time | None] = []
    for name in ("quiet_from", "quiet_until"):
        text = str(form.get(name, "")).strip()
        try:
            hours.append(time.fromisoformat(text).replace(tzinfo=None, second=0, microsecond=0) if text else None)
        except ValueError:
            raise field_error(name, "invalid", "Enter a time such as 22:00.") from None
    begin, end = hours
    if (begin is None) != (end is None):
        raise field_error("quiet_from", "invalid", "Enter both the start and the end of the quiet hours, or neither.")
    return begin, end


def own_deliveries(person: User) -> QuerySet[Delivery]:
    """Return the deliveries to a user, newest first. Raises NotAllowed for agent tokens."""
    choice_for(person)
    return Delivery.objects.filter(person=person).select_related("person", "request").order_by("-pk")


def deliveries_for(viewer: User, status: str = "", before: int | None = None) -> QuerySet[Delivery]:
    """Return all deliveries, newest first. Raises NotAllowed for users other than administrators."""
    if not has_role(viewer, ADMINISTRATOR):
        raise NotAllowed("Only administrators may read the log of deliveries.")
    found = Delivery.objects.select_related("person", "request").order_by("-pk")
    if status in Delivery.Status.values:
        found = found.filter(status=status)
    return found.filter(pk__lt=before) if before is not None else found
