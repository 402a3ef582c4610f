"""The page Profile, and the time zone and formats that follow from it."""

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User

from approvals.models import AuditEntry
from catalog.access.people import check_columns
from catalog.access.personal_settings import change_settings
from catalog.core.canonical_json import format_utc
from catalog.models import PersonalSettings
from catalog.text.formats import ReaderFormats, written_for
from catalog.ui.lists import start_of_day
from tests.approvals.factories import delivery_to
from tests.pages import Pages

pytestmark = pytest.mark.django_db
PAGE = "/profile/"
FIELDS = {"time_zone": "Europe/Berlin", "locale": "de", "theme": "dark", "shortcuts": "on"}


def save(user: User, status: int = 200, **fields: str) -> Pages:
    """Save the form and return the page that comes."""
    pages = Pages(user)
    pages.open(PAGE)
    pages.send(PAGE, {**FIELDS, **fields}, status)
    return pages


def test_settings_apply_to_the_next_page(rosa: User) -> None:
    pages = save(rosa, first_name="Rosa", last_name="Méndez")
    kept = PersonalSettings.objects.get(person=rosa)
    assert (kept.time_zone, kept.locale, kept.theme, kept.shortcuts) == ("Europe/Berlin", "de", "dark", True)
    assert 'data-theme="dark"' in pages.html and 'data-shortcuts="on"' in pages.html
    assert "CET" in pages.context["now"] or "CEST" in pages.context["now"]
    assert "Rosa Méndez" in pages.html


def test_new_name_is_audited(rosa: User) -> None:
    save(rosa, first_name="Rosa", last_name="Diaz")
    save(rosa, first_name="Rosa", last_name="Diaz")
    entry = AuditEntry.objects.get(action="account.renamed")
    assert (entry.actor, entry.object_ref, entry.details_json["after"]) == (rosa, f"user_{rosa.pk}", "Rosa Diaz")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"first_name": "Ro\u202esa"}, "first_name"),
        ({"last_name": "x" * 151}, "last_name"),
        ({"time_zone": "../etc/passwd"}, "time_zone"),
        ({"time_zone": "Moon/Base"}, "time_zone"),
        ({"locale": "xx"}, "locale"),
        ({"theme": "pink"}, "theme"),
    ],
)
def test_invalid_settings_name_their_field_and_change_nothing(rosa: User, fields: dict[str, str], wrong: str) -> None:
    name = rosa.get_full_name()
    pages = save(rosa, 422, **fields)
    assert [each.target for each in pages.context["form"].error_list] == [f"id_{wrong}"]
    rosa.refresh_from_db()
    assert rosa.get_full_name() == name and not PersonalSettings.objects.exists()


@pytest.mark.parametrize("name", ["Ro\u00a0sa", "\u0645\u200c\u0646", "Ro\u3000sa"])
def test_own_name_follows_the_rules_of_people(rosa: User, name: str) -> None:
    assert check_columns({"first_name": name})["first_name"] in save(rosa, first_name=name).html


def test_single_settings_are_chosen_without_the_form(rosa: User) -> None:
    pages = Pages(rosa)
    pages.open(PAGE)
    pages.send("/profile/choose/", {"shortcuts": "off"}, 204)
    pages.open(PAGE)
    pages.send("/profile/choose/", {"time_zone": "Asia/Tokyo", "next": "/profile/"})
    assert 'data-shortcuts="off"' in pages.html and "JST" in pages.context["now"]
    pages.send("/profile/choose/", {"theme": "pink"}, 422)


def test_settings_are_those_of_one_person(rosa: User, tomas: User) -> None:
    change_settings(rosa, {"time_zone": "Asia/Tokyo", "theme": "dark"})
    pages = Pages(tomas)
    pages.open(PAGE)
    assert "UTC" in pages.context["now"] and "data-theme=" not in pages.html


def test_api_keeps_utc_for_whoever_asks(rosa: User) -> None:
    change_settings(rosa, {"time_zone": "Asia/Tokyo", "locale": "de"})
    delivery, client = delivery_to(rosa), Pages(rosa).client
    [found] = client.get("/api/v1/notifications/deliveries/").json()["results"]
    assert found["due_at"] == format_utc(delivery.due_at)


def test_day_of_a_filter_begins_at_the_readers_midnight() -> None:
    with written_for(ReaderFormats("Asia/Tokyo")):
        assert start_of_day("2026-07-20") == datetime(2026, 7, 19, 15, tzinfo=UTC)
