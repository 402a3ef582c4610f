"""Times, dates and numbers in the formats of a reader."""

from datetime import UTC, datetime

import pytest
from django.utils import dateformat

from catalog.text import formats
from catalog.text.formats import LOCALES, ReaderFormats, written_for

MOMENT = datetime(2026, 7, 20, 22, 30, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("locale", "date", "exact", "number"),
    [
        ("", "21 Jul 2026", "2026-07-21 00:30:05 CEST", "1,234.50"),
        ("en-us", "Jul 21, 2026", "07/21/2026 12:30:05 AM CEST", "1,234.50"),
        ("de", "21 Jul 2026", "21.07.2026 00:30:05 CEST", "1.234,50"),
        ("sv", "2026-07-21", "2026-07-21 00:30:05 CEST", "1\xa0234,50"),
    ],
)
def test_formats_follow_zone_and_locale(locale: str, date: str, exact: str, number: str) -> None:
    with written_for(ReaderFormats("Europe/Berlin", locale)):
        assert (formats.format_date(MOMENT), formats.format_exactly(MOMENT)) == (date, exact)
        assert formats.format_number(1234.5, 2) == number
    assert formats.format_exactly(MOMENT) == "2026-07-20 22:30:05 UTC"


def test_every_locale_has_formats_of_its_own() -> None:
    """Django answers an unknown language with its default, which would be a silent mistake."""
    assert {locale for locale in LOCALES if formats.locale_formats(locale) is formats.INTERNATIONAL} == {""}


def test_zone_that_the_machine_lost_is_read_as_utc() -> None:
    with written_for(ReaderFormats("Moon/Base")):
        assert formats.format_exactly(MOMENT).endswith("UTC")


@pytest.mark.parametrize("locale", sorted(LOCALES))
def test_formats_are_written_as_django_writes_them(locale: str) -> None:
    wanted = formats.locale_formats(locale)
    with written_for(ReaderFormats("America/New_York", locale)):
        exact = f"{wanted.short_date} {wanted.seconds} T"
        expected = dateformat.format(formats.local_time(MOMENT), exact)
        assert formats.format_exactly(MOMENT) == expected
