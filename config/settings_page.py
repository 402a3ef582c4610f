"""The page Settings: each setting with its value and origin, the health of the installation, version and licence.

Nothing can be changed here: settings are read at the start. Names and meanings are those of `docs/settings.md`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from approvals.audit.checkpoint_file import newest_checkpoint
from approvals.models import Instance
from catalog.ui.requests import PageRequest, administrator_required
from config.environment import KEY_GENERATORS
from config.help.guides import path_of
from config.help.markdown import parse, plain_text
from config.operations import health
from plans.executor import heartbeats
from plans.models import Executor
from plans.store.backlog import Backlog, count_backlog
from toolgate.places import IS_INSTALLED

SECRET_NAME = re.compile(r"(KEYS?|TOKEN|SECRET|PASSWORD)$")
SECRET_ADDRESSES = frozenset({"TOOLGATE_EMAIL_URL", "TOOLGATE_NOTIFY_URLS"})
"""Settings whose addresses can hold a password or a token anywhere."""
REDIS_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SettingText:
    """One row of `docs/settings.md`: the name and the first sentence of its meaning, without marks."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting as it is in force. `value` is empty for a secret and for one without a value."""

    text: SettingText
    value: str
    origin: str
    is_secret: bool
    is_set: bool


@dataclass(frozen=True, slots=True)
class HealthRow:
    name: str
    is_ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """State of what the installation consists of; `checkpoint` is None before the first."""

    checks: Sequence[HealthRow]
    executors: Sequence[Executor]
    backlog: Backlog
    checkpoint: datetime | None


@cache
def setting_texts() -> Mapping[str, Sequence[SettingText]]:
    """Return the rows of the settings guide by the headings above them. The guide is read once."""
    groups: dict[str, list[SettingText]] = {}
    heading = ""
    for node in parse(path_of("settings").read_text(encoding="utf-8")).children:
        if node.type == "heading":
            heading = plain_text(node)
        elif node.type == "table":
            rows = ([plain_text(cell) for cell in row.children] for row in node.children[1].children)
            groups[heading] = [SettingText(name, meaning.partition(". ")[0]) for name, *_default, meaning in rows]
    return groups


def setting_rows() -> Mapping[str, Sequence[SettingRow]]:
    """Return all settings by group, with the values of secrets left out."""
    return {group: [_setting_row(text) for text in texts] for group, texts in setting_texts().items()}


def _setting_row(text: SettingText) -> SettingRow:
    name = text.name
    value = os.environ.get(name, "") if name == "TOOLGATE_EMAIL_URL" else getattr(settings, name)
    if name in settings.SETTING_ORIGINS:
        origin = settings.SETTING_ORIGINS[name]
    else:
        origin = "keys.env" if name in KEY_GENERATORS else ""
    is_number = isinstance(value, int | float)
    is_secret = name in SECRET_ADDRESSES or (SECRET_NAME.search(name) is not None and not is_number)
    return SettingRow(text, "" if is_secret else _value_text(value), origin, is_secret, is_set=bool(value))


def _value_text(value: Any) -> str:
    match value:
        case bool():
            return _("on") if value else _("off")
        case dict():
            return ",".join(str(limit) if tool == "*" else f"{tool}={limit}" for tool, limit in value.items())
        case list() | tuple():
            return ", ".join(map(_value_text, value))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if "://" not in text:
        return text
    # Neither user and password, nor options, which may hold a password. One that is not encoded may have any sign.
    scheme, _mark, rest = text.partition("://")
    return f"{scheme}://{re.split('[?#]', rest.rpartition('@')[2])[0]}"


def operation() -> Operation:
    """Return the state of database, Redis, workers, queue and audit log."""
    checks = [HealthRow(name, answer == health.OK, answer) for name, answer in health.run_checks().items()]
    if settings.REDIS_URL:
        fault = redis_fault()
        checks.append(HealthRow("redis", not fault, fault or health.OK))
    try:
        known = newest_checkpoint(Instance.objects.get(pk=1).name)
    except OSError:
        known = None  # the check of the audit log gives the reason
    at = datetime.fromisoformat(known.at) if known else None
    return Operation(checks, heartbeats.live_executors(), count_backlog(), at)


def redis_fault() -> str:
    """Return the reason why Redis does not answer; empty if it does."""
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=REDIS_TIMEOUT_SECONDS, socket_connect_timeout=REDIS_TIMEOUT_SECONDS
        ) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        return _("does not answer (%(reason)s). Check that it runs, and check REDIS_URL.") % {
            "reason": type(error).__name__
        }
    return ""


@cache
def licence_text() -> str:
    """Return the text of the licence; empty if its file was not installed."""
    if IS_INSTALLED:
        return distribution("toolgate").read_text("licenses/LICENSE") or ""
    path = Path(settings.BASE_DIR, "LICENSE")
    return path.read_text(encoding="utf-8") if path.exists() else ""


@require_safe
@administrator_required
def settings_page(request: PageRequest) -> HttpResponse:
    shown = {
        "section": "settings",
        "groups": setting_rows(),
        "unknown_names": settings.UNKNOWN_NAMES,
        "operation": operation(),
        "version": settings.SPECTACULAR_SETTINGS["VERSION"],
        "licence": licence_text(),
    }
    return render(request, "settings.html", shown)
