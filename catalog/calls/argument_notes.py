"""Notes on the arguments of a call for people: which values are defaults, and what was left out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext, gettext_noop

from catalog.core.json_paths import dotted, value_at
from catalog.definitions.tool import Tool
from catalog.errors import ParameterError
from catalog.models import Call
from catalog.schemas.defaults import MissingArguments, SchemaDefaults, paths_from_store

MAX_NOTES = 50
KINDS = {
    "default": gettext_noop("default"),
    "refused": gettext_noop("default of the tool, not passed: the tool applies its own"),
    "server": gettext_noop("not sent; the default that the server documents"),
    "undecided": gettext_noop("decided when it runs"),
    "omitted": gettext_noop("was null and left out: the tool allows no null here"),
}


@dataclass(frozen=True, slots=True)
class ArgumentNote:
    """A note on one argument: its dotted path, a kind of KINDS, and its default value, if there is one."""

    path: str
    kind: str
    value: Any = None

    @property
    def label(self) -> str:
        return gettext(KINDS[self.kind])

    @property
    def value_text(self) -> str:
        return json.dumps(self.value, ensure_ascii=False)

    @property
    def has_value(self) -> bool:
        return self.kind in ("default", "refused", "server")


def notes_on_arguments(
    tool: Tool[Any, Any] | None, call: Call, arguments: dict[str, Any], schema: Mapping[str, Any]
) -> list[ArgumentNote]:
    """Return notes on a stored call's arguments: the defaults among them, and the arguments that are left out."""
    filled = [
        ArgumentNote(dotted(path), "default", value_at(arguments, path)) for path in paths_from_store(call.defaults)
    ]
    return [*filled, *notes_on_missing(tool, schema, arguments, call.omitted_paths)][:MAX_NOTES]


def notes_on_missing(
    tool: Tool[Any, Any] | None, schema: Mapping[str, Any], arguments: Mapping[str, Any], omitted: list[str]
) -> list[ArgumentNote]:
    """Return notes on the arguments that a stored call leaves out, at most MAX_NOTES.

    `schema` is the input schema of the call's version; `tool` is None if its code is not loaded. An optional argument
    without a default is listed only if the tool computes its value when it runs.
    """
    try:
        missing = SchemaDefaults(dict(schema)).missing(dict(arguments))
    except ParameterError:  # too large to describe
        missing = MissingArguments({}, ())
    kind = "server" if tool is not None and not tool.fills_defaults else "refused"
    notes = [ArgumentNote(path, "omitted") for path in omitted]
    notes += [ArgumentNote(dotted(path), kind, value) for path, value in missing.defaults.items()]
    if tool is not None and tool.binding.has_default_factories:
        notes += [ArgumentNote(dotted(path), "undecided") for path in missing.undecided]
    return notes[:MAX_NOTES]
