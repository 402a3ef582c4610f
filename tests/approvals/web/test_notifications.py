"""Pages of notifications: preferences and deliveries."""

import re
from functools import partial

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from approvals.messaging.addresses import decrypt_address
from approvals.models import AuditEntry, NotificationChoice
from approvals.notifications.messages import KIND_LABELS, TITLES
from approvals.notifications.preferences import MAX_ADDRESSES, change_choice
from tests.approvals.factories import SECRET_HOOK, ask, delivery_to
from tests.pages import Pages
from tests.racing import at_once

pytestmark = pytest.mark.django_db
PAGE = "/profile/notifications/"
HINT = 'id="id_by_mail_helptext"'


def save(user, status: int = 200, **fields: str) -> str:
    """Submit the form and return the text of the page."""
    pages = Pages(user)
    pages.open(PAGE)
    return pages.send(PAGE, {"by_mail": "1", **fields}, status)


def choice(user) -> NotificationChoice:
    """Return the stored preferences."""
    return NotificationChoice.objects.get(person=user)


@pytest.fixture
def mailed(rosa, settings) -> None:
    """An installation that sends mail, and a mail address for Rosa."""
    settings.TOOLGATE_SENDS_MAIL = True
    rosa.email = "rosa@example.org"
    rosa.save()


def box_for_mail(user) -> str:
    """Return the markup of the mail checkbox."""
    pages = Pages(user)
    pages.open(PAGE)
    (box,) = re.findall(r'<input[^>]* name="by_mail"[^>]*>', pages.html)
    return str(box)


def test_default_is_mail(rosa, mailed):
    pages = Pages(rosa)
    assert "rosa@example.org" in pages.open(PAGE) and HINT not in pages.html
    assert "checked" in box_for_mail(rosa) and "disabled" not in box_for_mail(rosa)
    assert not NotificationChoice.objects.exists()


def test_mail_is_not_offered_without_a_mail_server(rosa, mailed, settings):
    settings.TOOLGATE_SENDS_MAIL = False
    pages = Pages(rosa)
    pages.open(PAGE)
    assert HINT in pages.html
    assert "disabled" in box_for_mail(rosa) and "checked" not in box_for_mail(rosa)
    save(rosa, by_mail="", address=SECRET_HOOK)
    assert choice(rosa).by_mail


def test_mail_is_not_offered_without_an_address(rosa, settings):
    settings.TOOLGATE_SENDS_MAIL = True
    assert "disabled" in box_for_mail(rosa) and "checked" not in box_for_mail(rosa)


def test_preferences_are_saved(rosa, mailed):
    save(rosa, quiet_from="22:00", quiet_until="07:30")
    kept = choice(rosa)
    assert (kept.by_mail, f"{kept.quiet_from:%H:%M}", f"{kept.quiet_until:%H:%M}") == (True, "22:00", "07:30")
    save(rosa, by_mail="")
    assert not choice(rosa).by_mail and choice(rosa).quiet_from is None


def test_refused_form_keeps_its_input(rosa):
    save(rosa, address="https://hooks.example.org/kept")
    typed = {
        "address": SECRET_HOOK,
        "quiet_from": "22:00",
        "quiet_until": "soon",
        "remove": "0",
    }
    pages = Pages(rosa)
    pages.open(PAGE)
    pages.send(PAGE, typed, 422)
    assert all(f'value="{typed[name]}"' in pages.html for name in ("address", "quiet_from"))
    (box,) = re.findall(r'<input[^>]* name="remove"[^>]*>', pages.html)
    assert "checked" in box
    assert len(choice(rosa).addresses) == 1


def test_every_kind_has_a_label(rosa):
    delivery_to(rosa)
    page = Pages(rosa).open(PAGE)
    assert KIND_LABELS["approval.opened"] in page and "approval.opened" not in page
    assert KIND_LABELS.keys() == TITLES.keys()


def test_address_is_stored_encrypted_and_shown_without_secrets(rosa):
    page = save(rosa, address=SECRET_HOOK)
    assert "https://hooks.example.org/…" in page and "secret-token" not in page
    [kept] = choice(rosa).addresses
    assert "secret-token" not in str(kept) and decrypt_address(kept["channel"], kept["ciphertext"]).text == SECRET_HOOK
    save(rosa, remove="0")
    assert choice(rosa).addresses == []


def test_change_of_channels_is_audited(rosa, mailed):
    save(rosa, address=SECRET_HOOK)
    save(rosa, quiet_from="22:00", quiet_until="07:00")
    save(rosa, remove="0", by_mail="")
    entries = AuditEntry.objects.filter(action="notifications.changed").order_by("seq")
    assert [(each.actor_name, each.object_ref) for each in entries] == [("rosa", "rosa")] * 2
    first, second = (each.details_json for each in entries)
    assert (first["added"], first["removed"]) == (["webhook"], [])
    assert (second["added"], second["removed"]) == ([], ["mail", "webhook"])
    assert not AuditEntry.objects.filter(details__contains="hooks.example.org").exists()


@pytest.mark.slow
@pytest.mark.db
@pytest.mark.django_db(transaction=True)
def test_two_concurrent_first_changes_are_both_saved(rosa):
    forms = [{"by_mail": "1", "address": f"https://hooks.example.org/{number}"} for number in range(3)]
    assert at_once(*[partial(change_choice, rosa, form, []) for form in forms]) == [None] * 3
    assert len(choice(rosa).addresses) == 3


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"address": "file:///etc/passwd"}, "address"),
        ({"address": "https://user:word@example.org/"}, "address"),
        ({"quiet_from": "22:00"}, "quiet_from"),
        ({"quiet_from": "x", "quiet_until": "07:00"}, "quiet_from"),
    ],
)
def test_invalid_preferences_name_their_field(rosa, fields, wrong):
    pages = Pages(rosa)
    pages.open(PAGE)
    pages.send(PAGE, {"by_mail": "1", **fields}, 422)
    assert re.findall(r'name="(\w+)"[^>]* aria-invalid="true"', pages.html) == [wrong]
    assert f'id="id_{wrong}_error"' in pages.html
    assert not NotificationChoice.objects.exists()


def test_number_of_addresses_is_limited(rosa):
    for number in range(MAX_ADDRESSES):
        save(rosa, address=f"https://hooks.example.org/{number}")
    save(rosa, 422, address=SECRET_HOOK)
    assert len(choice(rosa).addresses) == MAX_ADDRESSES


def test_users_see_their_own_deliveries(rosa, tomas, ada):
    delivery_to(rosa, request=ask(ada), status="failed", last_error="No answer.")
    page = Pages(rosa).open(PAGE)
    assert "rosa@example.org" in page and "No answer." in page
    assert "rosa@example.org" not in Pages(tomas).open(PAGE)


def test_administrators_see_all_deliveries(admin, rosa, tomas):
    first = delivery_to(rosa, status="sent")
    second = delivery_to(tomas, status="failed")
    page = Pages(admin).open("/audit/deliveries/")
    assert "rosa@example.org" in page and "tomas@example.org" in page
    assert "rosa@example.org" not in Pages(admin).open("/audit/deliveries/?status=failed")
    assert "tomas@example.org" not in Pages(admin).open(f"/audit/deliveries/?before={second.pk}")
    assert "@example.org" not in Pages(admin).open(f"/audit/deliveries/?before={first.pk}&status=x")


def test_administrator_retries_failed_delivery(admin, rosa):
    failed, arrived = delivery_to(rosa, status="failed", last_error="No answer."), delivery_to(rosa, status="sent")
    pages, retry = Pages(admin), f"/audit/deliveries/{failed.pk}/retry/"
    pages.open("/audit/deliveries/")
    assert re.findall(r'action="(/audit/deliveries/\d+/retry/)"', pages.html) == [retry]
    pages.send(retry)
    failed.refresh_from_db()
    assert failed.status == "due"
    pages.send(f"/audit/deliveries/{arrived.pk}/retry/")
    arrived.refresh_from_db()
    assert arrived.status == "sent"
    assert AuditEntry.objects.get(action="notifications.retried").actor == admin
    pages.send(f"/audit/deliveries/{'9' * 30}/retry/", status=404)
    own = Pages(rosa)
    own.open(PAGE)
    assert "/retry/" not in own.html
    own.send(f"/audit/deliveries/{failed.pk}/retry/", status=403)


def test_only_administrators_see_all_deliveries(ada, rosa, vera):
    for person in (ada, rosa, vera):
        Pages(person).open("/audit/deliveries/", 403)


def test_sign_in_is_required(client, db):
    assert client.get(PAGE).status_code == 302 and client.get("/audit/deliveries/").status_code == 302


def test_invalid_installation_address_is_named_by_its_number(settings):
    settings.TOOLGATE_NOTIFY_URLS = ["desk@example.org", "gopher://secret-token"]
    with pytest.raises(SystemCheckError) as refused:
        call_command("check")
    assert "TOOLGATE_NOTIFY_URLS, number 2" in str(refused.value) and "secret-token" not in str(refused.value)
