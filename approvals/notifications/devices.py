"""Browsers that people let Toolgate notify by web push: added, removed, tested, and ended with the sign-in."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext as _

from approvals.messaging import web_push
from approvals.messaging.addresses import PUSH, Address
from approvals.messaging.web_push import Subscription, read_subscription
from approvals.models import Delivery, PushDevice
from approvals.notifications.messages import TEST_KIND
from catalog.access.sessions import device_words
from catalog.calls.vault import keyring
from catalog.core import clock
from catalog.core.transactions import log_unexpected, retry_on_deadlock
from catalog.errors import field_error
from catalog.signals import record_fact

MAX_DEVICES = 10
BROWSER_COOKIE = "toolgate_browser"
BROWSER_COOKIE_SECONDS = 400 * 24 * 3600
"""The longest life that browsers give a cookie."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device on its person's page; `mark` lets a browser recognise its own address without being told it."""

    device: PushDevice
    mark: str


def device_rows(person: User) -> Sequence[DeviceRow]:
    """Return a person's devices, newest first."""
    rows = []
    for device in PushDevice.objects.filter(person=person).order_by("-pk"):
        found = _subscription(device)
        rows.append(DeviceRow(device, _digest(found.endpoint) if found else ""))
    return rows


@retry_on_deadlock
def add_device(person: User, fields: Mapping[str, str], *, name: str, browser: str) -> PushDevice:
    """Add the browser that sent its subscription, in place of an earlier one of the same browser.

    An address is its last person's. Raises ParameterError.
    """
    subscription = read_subscription(fields)
    keys = _address_keys(subscription)
    with transaction.atomic():
        User.objects.select_for_update().get(pk=person.pk)
        own = PushDevice.objects.filter(person=person)
        known = PushDevice.objects.filter(Q(address_key__in=keys) | Q(pk__in=own.filter(browser_key=_digest(browser))))
        is_new = not known.filter(person=person).exists()
        known.delete()
        if own.count() >= MAX_DEVICES:
            raise field_error("endpoint", "invalid", f"You can have at most {MAX_DEVICES} devices. Remove one first.")
        device = PushDevice.objects.create(
            person=person,
            name=name,
            address_key=keys[0],
            subscription=keyring().encrypt(subscription.text()),
            browser_key=_digest(browser),
            created_at=clock.now(),
        )
        if is_new:
            record_fact("notifications.changed", by=person, notifications=person.get_username(), added=[PUSH])
    return device


@retry_on_deadlock
def remove_device(person: User, number: int) -> bool:
    """Remove one of a person's devices and return whether there was one."""
    with transaction.atomic():
        deleted, _rows = PushDevice.objects.filter(person=person, pk=number).delete()
        if deleted:
            record_fact("notifications.changed", by=person, notifications=person.get_username(), removed=[PUSH])
    return bool(deleted)


def queue_test(device: PushDevice) -> bool:
    """Queue a test for a device, at most one a minute, and return whether there is an address to send it to."""
    address = device_address(device)
    if address is None:
        return False
    now = clock.now()
    delivery = Delivery(
        event_key=f"{TEST_KIND}:{device.person_id}:{now:%Y-%m-%dT%H:%M}",  # unique with the address
        kind=TEST_KIND,
        person=device.person,
        channel=address.channel,
        address_key=address.key,
        address=address.encrypted(),
        shown_address=address.shown,
        due_at=now,
        created_at=now,
    )
    Delivery.objects.bulk_create([delivery], ignore_conflicts=True)
    return True


def addresses_of_devices(people: Sequence[User]) -> Mapping[int, Sequence[Address]]:
    """Return the addresses of people's devices by person, in one statement; none while web push is off."""
    found: dict[int, list[Address]] = {}
    if people and web_push.is_configured():
        for device in PushDevice.objects.filter(person__in=people).order_by("pk"):
            address = device_address(device)
            if address is not None:
                found.setdefault(device.person_id, []).append(address)
    return found


def device_address(device: PushDevice) -> Address | None:
    """Return the address of a device; None if its encryption key is gone."""
    subscription = _subscription(device)
    return Address(PUSH, subscription.text()) if subscription else None


def is_still_wanted(delivery: Delivery, subscription: Subscription) -> bool:
    """Return whether the person of a delivery is active and still has the device: it may have ended since the event."""
    devices = PushDevice.objects.filter(person=delivery.person, person__is_active=True)
    return devices.filter(address_key__in=_address_keys(subscription)).exists()


def forget_subscription(subscription: Subscription) -> None:
    """Remove the device whose subscription the push service does not know any more."""
    PushDevice.objects.filter(address_key__in=_address_keys(subscription)).delete()


def device_name(user_agent: str) -> str:
    """Return browser and system as a browser names itself, such as Firefox on Windows."""
    browser, system = device_words(user_agent)
    name = browser or _("Browser")
    return _("%(browser)s on %(system)s") % {"browser": name, "system": system} if system else name


def browser_of(request: HttpRequest) -> str:
    """Return the id in the browser's cookie; empty if it has none."""
    text = request.COOKIES.get(BROWSER_COOKIE, "")
    return text if re.fullmatch(r"[A-Za-z0-9_-]{20,64}", text) else ""


def on_sign_out(sender: object, *, request: HttpRequest, user: User | None, **kwargs: Any) -> None:
    """Remove the browser's own device when its person signs out; other devices go on."""
    browser = browser_of(request)
    if user is not None and browser:
        PushDevice.objects.filter(person=user, browser_key=_digest(browser)).delete()


def on_sessions_ended(sender: object, *, user: User, keep: HttpRequest | None, **kwargs: Any) -> None:
    """Remove the devices of a person whose sessions ended, except that of the browser that stays signed in."""
    devices = PushDevice.objects.filter(person=user)
    browser = browser_of(keep) if keep is not None else ""
    (devices.exclude(browser_key=_digest(browser)) if browser else devices).delete()


def on_account_save(sender: object, *, instance: User, **kwargs: Any) -> None:
    """Remove the devices of a person who was deactivated."""
    if not instance.is_active:
        PushDevice.objects.filter(person=instance).delete()


def _subscription(device: PushDevice) -> Subscription | None:
    try:
        return Subscription.of_text(keyring().decrypt(device.subscription))
    except Exception as error:  # noqa: BLE001 - a lost key may cost a notification, never a call
        log_unexpected(error)
        return None


def _address_keys(subscription: Subscription) -> list[str]:
    """Return the hashes of an address under all secret keys; the first one is stored."""
    return [_digest(fingerprint) for fingerprint in keyring().fingerprints(subscription.endpoint)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
