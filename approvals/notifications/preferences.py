"""How a person wants to be told: read for their page, changed by their form. Addresses are kept encrypted."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import time
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from approvals.messaging.addresses import MAIL, read_address
from approvals.models import Delivery, NotificationChoice
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import ParameterError, field_error
from catalog.signals import record_fact

MAX_ADDRESSES = 5
MAX_DELIVERIES_SHOWN = 50
MARK_LENGTH = 8
"""Letters of a hash that tell apart addresses which are shown alike."""


@dataclass(frozen=True, slots=True)
class PreferencesPage:
    """What a person's page shows: the choice, their addresses without secrets, and what they were sent last."""

    choice: NotificationChoice
    addresses: Sequence[str]
    mail_reaches: bool
    sends_mail: bool
    mail: str
    sent: Sequence[Delivery]


def stored_choice(person: User) -> NotificationChoice:
    """Return what a person chose, or what everyone has who chose nothing; that is not stored."""
    return NotificationChoice.objects.filter(person=person).first() or NotificationChoice(person=person)


def preferences_page(person: User) -> PreferencesPage:
    """Return what the page of a person's notifications shows."""
    choice = stored_choice(person)
    shown = [str(kept["shown"]) for kept in choice.addresses]
    mail = (mail_reaches(person), settings.TOOLGATE_SENDS_MAIL, person.email)
    return PreferencesPage(choice, shown, *mail, list(own_deliveries(person)[:MAX_DELIVERIES_SHOWN]))


def mail_reaches(person: User) -> bool:
    """Say whether a mail would reach someone: this installation sends them, and the account has an address."""
    return bool(settings.TOOLGATE_SENDS_MAIL and person.email)


@contextmanager
def _saving_choice(person: User) -> Iterator[NotificationChoice]:
    """Open a transaction on what a person chose, and store what the body makes of it."""
    with transaction.atomic():
        NotificationChoice.objects.get_or_create(person=person)  # of two first changes at once, neither fails
        choice = NotificationChoice.objects.select_for_update().get(person=person)
        before = _channels_in_use(choice)
        yield choice
        choice.save()
        _record_channel_change(person, before, _channels_in_use(choice))


@retry_on_deadlock
def change_choice(person: User, form: Mapping[str, Any], removed: Sequence[str]) -> None:
    """Store what a form says; `removed` are the positions of addresses to be given up. Raises ParameterError.

    Where no mail can reach the person the form does not ask whether one should: what they chose before stays.
    """
    with _saving_choice(person) as choice:
        if mail_reaches(person):
            choice.by_mail = bool(form.get("by_mail"))
        choice.quiet_from, choice.quiet_until = _hours(form)
        choice.time_zone = _zone(str(form.get("time_zone", "")).strip() or "UTC")
        choice.addresses = _addresses_from_form(choice, str(form.get("address", "")).strip(), removed)


def choice_for(person: User) -> NotificationChoice:
    """Return what a person chose, for themselves. Raises NotAllowed for agents' tokens: nobody tells them."""
    if agent_token_of(person) is not None:
        raise NotAllowed("Agents' tokens are told nothing, and do not say where people are.")
    return stored_choice(person)


@retry_on_deadlock
def set_choice(person: User, wanted: Mapping[str, Any]) -> NotificationChoice:
    """Store what is to be different; return what holds then. Raises NotAllowed, ParameterError.

    `addresses` are all there are to be: new ones, and of those that stay what `addresses_by_label` calls them.
    """
    choice_for(person)
    with _saving_choice(person) as choice:
        choice.by_mail = wanted.get("by_mail", choice.by_mail)
        if not wanted.keys().isdisjoint(("quiet_from", "quiet_until")):
            kept = {"quiet_from": _format_time(choice.quiet_from), "quiet_until": _format_time(choice.quiet_until)}
            hours = {name: wanted.get(name, text) or "" for name, text in kept.items()}
            choice.quiet_from, choice.quiet_until = _hours(hours)
        choice.time_zone = _zone(wanted.get("time_zone", choice.time_zone))
        if "addresses" in wanted:
            choice.addresses = _addresses_for_labels(choice, wanted["addresses"])
    return choice


def _format_time(moment: time | None) -> str:
    return f"{moment:%H:%M}" if moment else ""


def addresses_by_label(choice: NotificationChoice) -> dict[str, dict[str, str]]:
    """Return a person's addresses by what may be shown of each: of those with a secret, with what tells them apart."""
    return {_address_label(each): each for each in choice.addresses}


def _address_label(kept: Mapping[str, str]) -> str:
    mark = "" if kept["channel"] == MAIL else hashlib.sha256(kept["ciphertext"].encode()).hexdigest()[:MARK_LENGTH]
    return f"{kept['shown']}{mark}"


def _addresses_for_labels(choice: NotificationChoice, texts: Sequence[str]) -> list[dict[str, str]]:
    known = addresses_by_label(choice)
    found: dict[str, dict[str, str]] = {}
    for number, text in enumerate(dict.fromkeys(texts)):
        try:
            found[text] = known.get(text) or read_address(text).kept()
        except ParameterError as error:
            raise field_error(f"addresses.{number}", "invalid", error.message) from None
    return list(found.values())


def _addresses_from_form(choice: NotificationChoice, text: str, removed: Sequence[str]) -> list[dict[str, str]]:
    kept = [each for number, each in enumerate(choice.addresses) if str(number) not in removed]
    if text:
        kept.append(read_address(text).kept())
    if len(kept) > MAX_ADDRESSES:
        raise field_error("address", "invalid", f"You have {MAX_ADDRESSES} addresses at most: give one up first.")
    return kept


def _channels_in_use(choice: NotificationChoice) -> dict[str, str]:
    """Return the channels that reach a person, by what tells them apart."""
    account = {MAIL: MAIL} if choice.by_mail else {}
    return account | {each["ciphertext"]: each["channel"] for each in choice.addresses}


def _record_channel_change(person: User, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Keep in the audit log that someone is told elsewhere from now on: through which channels, never where."""
    if before == after:
        return
    added = sorted(after[key] for key in after.keys() - before.keys())
    removed = sorted(before[key] for key in before.keys() - after.keys())
    username = person.get_username()
    record_fact("notifications.changed", by=person, notifications=username, added=added, removed=removed)


def _hours(form: Mapping[str, Any]) -> tuple[time | None, time | None]:
    begin, end = (_hour(str(form.get(name, "")).strip(), name) for name in ("quiet_from", "quiet_until"))
    if (begin is None) != (end is None):
        raise field_error("quiet_from", "invalid", "Quiet hours have a beginning and an end: fill in both, or neither.")
    return begin, end


def _hour(text: str, name: str) -> time | None:
    if not text:
        return None
    try:
        return time.fromisoformat(text).replace(tzinfo=None, second=0, microsecond=0)
    except ValueError:
        raise field_error(name, "invalid", "Write a time such as 22:00.") from None


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):  # unknown, no name at all, a folder
        raise field_error("time_zone", "invalid", "Write a time zone such as Europe/Berlin.") from None
    return text


def own_deliveries(person: User) -> QuerySet[Delivery]:
    """Return what a person was sent, newest first. Raises NotAllowed for agents' tokens."""
    choice_for(person)
    return Delivery.objects.filter(person=person).select_related("person", "request").order_by("-pk")


def deliveries_for(viewer: User, status: str = "", before: int | None = None) -> QuerySet[Delivery]:
    """Return what was sent to whom, newest first. Raises NotAllowed for who is no administrator."""
    if not has_role(viewer, ADMINISTRATOR):
        raise NotAllowed("Only administrators read the log of deliveries.")
    found = Delivery.objects.select_related("person", "request").order_by("-pk")
    if status in Delivery.Status.values:
        found = found.filter(status=status)
    return found.filter(pk__lt=before) if before is not None else found
