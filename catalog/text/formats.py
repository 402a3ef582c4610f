"""Times, dates and numbers as a reader writes them: in their time zone, and in the formats of their locale.

The language stays English: the formats of a locale are used, its translations never. REST, CSV and the audit log's
export are written for programs and keep ISO 8601 in UTC.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

from django.utils import timezone
from django.utils.formats import get_format
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

DEFAULT_TIME_ZONE = "UTC"
REGIONS = (
    *("Africa/", "America/", "Antarctica/", "Arctic/", "Asia/"),
    *("Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/"),
)
"""Prefixes of the names of time zones by place; others are aliases, such as US/Eastern."""
LOCALES: Mapping[str, "StrOrPromise"] = {
    "": _("International"),
    "en-us": _("English (United States)"),
    "en-gb": _("English (United Kingdom)"),
    "en-au": _("English (Australia)"),
    "cs": _("Czech"),
    "da": _("Danish"),
    "de": _("German"),
    "de-ch": _("German (Switzerland)"),
    "es": _("Spanish"),
    "es-mx": _("Spanish (Mexico)"),
    "fi": _("Finnish"),
    "fr": _("French"),
    "hu": _("Hungarian"),
    "it": _("Italian"),
    "ja": _("Japanese"),
    "ko": _("Korean"),
    "nb": _("Norwegian"),
    "nl": _("Dutch"),
    "pl": _("Polish"),
    "pt": _("Portuguese"),
    "pt-br": _("Portuguese (Brazil)"),
    "ro": _("Romanian"),
    "sv": _("Swedish"),
    "tr": _("Turkish"),
    "uk": _("Ukrainian"),
    "zh-hans": _("Chinese"),
}
"""Locales by code; the empty one writes 20 Nov 2026, 14:30 and 1,234.5."""


@dataclass(frozen=True, slots=True)
class LocaleFormats:
    """Formats of dates and times in the language of Django's `date` filter, and the separators of numbers."""

    date: str
    day: str
    short_date: str
    time: str
    seconds: str
    decimal_separator: str
    thousand_separator: str


INTERNATIONAL = LocaleFormats("j M Y", "j M", "Y-m-d", "H:i", "H:i:s", ".", ",")


@functools.cache
def locale_formats(locale: str) -> LocaleFormats:
    """Return the formats of a locale, as Django knows them; names of months stay English and follow its order."""
    if locale not in LOCALES or not locale:
        return INTERNATIONAL
    short = str(get_format("SHORT_DATE_FORMAT", lang=locale, use_l10n=True))
    known_time = str(get_format("TIME_FORMAT", lang=locale, use_l10n=True))
    found = re.fullmatch(r"[GH](\W)i(?:\Ws)?", known_time)
    time, seconds = (f"H{found[1]}i", f"H{found[1]}i{found[1]}s") if found else ("g:i A", "g:i:s A")
    if short.startswith(("m", "n")):
        order = ("M j, Y", "M j")
    elif short.startswith("Y"):
        order = (short, "M j")
    else:
        order = ("j M Y", "j M")
    decimal, thousand = (
        str(get_format(f"{name}_SEPARATOR", lang=locale, use_l10n=True)) for name in ("DECIMAL", "THOUSAND")
    )
    return LocaleFormats(*order, short, time, seconds, decimal, thousand)


@functools.cache
def time_zone_names() -> frozenset[str]:
    """Return the names of all time zones, such as Europe/Berlin and UTC, with their aliases."""
    return frozenset(available_timezones() - {"Factory", "localtime"})


@dataclass(frozen=True, slots=True)
class ReaderFormats:
    """A reader's time zone, such as Europe/Berlin, and locale: a key of `LOCALES`."""

    time_zone: str = DEFAULT_TIME_ZONE
    locale: str = ""

    @property
    def zone(self) -> tzinfo:
        """The time zone; UTC if this machine does not know its name any more."""
        if self.time_zone == DEFAULT_TIME_ZONE:
            return UTC
        try:
            return ZoneInfo(self.time_zone)
        except (KeyError, ValueError, OSError):
            return UTC


FOR_PROGRAMS = ReaderFormats()
_current: ContextVar[ReaderFormats] = ContextVar("reader", default=FOR_PROGRAMS)


@contextmanager
def written_for(reader: ReaderFormats) -> Iterator[None]:
    """Write times, dates and numbers for this reader inside a `with` block, and those of Django too."""
    token = _current.set(reader)
    try:
        with timezone.override(reader.zone):
            yield
    finally:
        _current.reset(token)


def current_reader() -> ReaderFormats:
    return _current.get()


def local_time(moment: datetime) -> datetime:
    """Return the moment in the reader's time zone."""
    return moment.astimezone(_current.get().zone)


def format_date(moment: date) -> str:
    """Return a date such as 20 Nov 2026, for a moment that of the reader's time zone."""
    return _format(moment, locale_formats(_current.get().locale).date)


def format_day(moment: date) -> str:
    """Return a date without its year, such as 20 Nov."""
    return _format(moment, locale_formats(_current.get().locale).day)


def format_weekday(moment: date) -> str:
    """Return a date with its day of the week, such as Friday, 20 Nov 2026."""
    return _format(moment, f"l, {locale_formats(_current.get().locale).date}")


def format_clock_time(moment: datetime) -> str:
    """Return the time to the second, such as 14:30:05."""
    return _format(moment, locale_formats(_current.get().locale).seconds)


def format_moment(moment: datetime) -> str:
    """Return a time of the current year with its zone, such as 20 Nov, 14:30 CET."""
    formats = locale_formats(_current.get().locale)
    return _format(moment, f"{formats.day}, {formats.time} T")


def format_exactly(moment: datetime) -> str:
    """Return a time to the second with date and zone, such as 2026-11-20 14:30:05 CET."""
    formats = locale_formats(_current.get().locale)
    return _format(moment, f"{formats.short_date} {formats.seconds} T")


def _format(moment: date, wanted: str) -> str:
    shown = local_time(moment) if isinstance(moment, datetime) else moment
    return "".join([part if isinstance(part, str) else part(shown) for part in _parts(wanted)])


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LETTERS: Mapping[str, Callable[[Any], str]] = {
    "A": lambda moment: "AM" if moment.hour < 12 else "PM",
    "H": lambda moment: f"{moment.hour:02}",
    "M": lambda moment: MONTHS[moment.month - 1],
    "T": lambda moment: moment.tzname(),
    "Y": lambda moment: f"{moment.year:04}",
    "d": lambda moment: f"{moment.day:02}",
    "g": lambda moment: str(moment.hour % 12 or 12),
    "i": lambda moment: f"{moment.minute:02}",
    "j": lambda moment: str(moment.day),
    "l": lambda moment: DAYS[moment.weekday()],
    "m": lambda moment: f"{moment.month:02}",
    "n": lambda moment: str(moment.month),
    "s": lambda moment: f"{moment.second:02}",
}
"""Letters of Django's `date` filter that the formats use. Its own formatting takes fifty times as long, and a page has
hundreds of times."""


@functools.cache
def _parts(wanted: str) -> Sequence[str | Callable[[Any], str]]:
    return [LETTERS.get(letter, letter) for letter in wanted]


def format_number(number: float | Decimal, decimals: int | None = None) -> str:
    """Return a number with separators of thousands, such as 1,234.5; `decimals` rounds it."""
    text = f"{number:,}" if decimals is None else f"{number:,.{decimals}f}"
    formats = locale_formats(_current.get().locale)
    if formats is INTERNATIONAL:
        return text
    return text.translate({ord(","): formats.thousand_separator, ord("."): formats.decimal_separator})
