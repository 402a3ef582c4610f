"""A person's own settings: name, time zone, locale, theme and shortcuts, and the formats that follow from them."""

from collections.abc import Mapping

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction

from catalog.access.people import check_columns
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import field_error
from catalog.models import PersonalSettings
from catalog.signals import record_fact
from catalog.text.formats import LOCALES, ReaderFormats, time_zone_names

SettingValue = str | bool
SETTING_NAMES = frozenset({"time_zone", "locale", "theme", "shortcuts"})


def settings_of(user: User | AnonymousUser) -> PersonalSettings:
    """Return a person's stored settings, or an unsaved row with the defaults; read once per instance of the user."""
    if isinstance(user, AnonymousUser):
        return PersonalSettings()
    try:
        found: PersonalSettings = user.personal_settings
    except ObjectDoesNotExist:
        found = PersonalSettings(person=user)
        # Django would ask the database again, as it keeps no answer for a row that does not exist.
        user._state.fields_cache["personal_settings"] = found
    return found


def formats_of(user: User | AnonymousUser) -> ReaderFormats:
    """Return the formats in which a person reads times and numbers."""
    chosen = settings_of(user)
    return ReaderFormats(chosen.time_zone or settings.TOOLGATE_TIME_ZONE, chosen.locale)


@retry_on_deadlock
def change_settings(person: User, changes: Mapping[str, SettingValue]) -> PersonalSettings:
    """Change some of a person's own settings and return all. Raises ParameterError."""
    checked = {name: _checked(name, value) for name, value in changes.items()}
    with transaction.atomic():
        stored, _created = PersonalSettings.objects.get_or_create(person=person)
        PersonalSettings.objects.filter(pk=stored.pk).update(**checked)
        stored.refresh_from_db()
    person._state.fields_cache["personal_settings"] = stored
    return stored


def _checked(name: str, value: SettingValue) -> SettingValue:
    match name:
        case "time_zone":
            return check_time_zone(str(value)) if value else ""
        case "locale" if value in LOCALES:
            return value
        case "theme" if value in ("", *PersonalSettings.Theme.values):
            return value
        case "shortcuts" if isinstance(value, bool):
            return value
    raise field_error(name, "invalid", "Choose one of the values that are offered.")


def check_time_zone(text: str) -> str:
    """Return the name of a time zone. Raises ParameterError at `time_zone`."""
    name = text.strip()
    if name not in time_zone_names():
        raise field_error("time_zone", "invalid", "Enter a time zone such as Europe/Berlin.")
    return name


@retry_on_deadlock
def rename_person(person: User, *, first_name: str, last_name: str) -> None:
    """Change a person's own name, which the audit log and requests show. Raises ParameterError."""
    names = check_columns({"first_name": first_name, "last_name": last_name})
    with transaction.atomic():
        before = User.objects.select_for_update().get(pk=person.pk)
        if (before.first_name, before.last_name) == tuple(names.values()):
            return
        User.objects.filter(pk=person.pk).update(**names)
        after = " ".join(filter(None, names.values()))
        record_fact(
            "account.renamed", by=person, account=f"user_{person.pk}", before=before.get_full_name(), after=after
        )
    person.first_name, person.last_name = names["first_name"], names["last_name"]
