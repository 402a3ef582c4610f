"""Secrets that people type into a draft: set aside when it is stored, put back where they stood when it is checked.

Nobody sees them again, in the draft or its versions: there they are `{"$secret": name}`. A placeholder that was moved
to another field, step or tool gets no value back, nor one whose value would be visible where it stands. A secret is
used only for the person who typed it.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.core.canonical_json import Json
from catalog.secrets.placeholders import PLACEHOLDER_KEY, find_placeholders, restore_secrets, without_macs
from plans.documents.merging import step_number
from plans.store.plan_documents import redacted_parameters

Secrets = Mapping[str, Any]
"""Pairs of the person who typed it (the key of a user) and the value, by tool and number of the step, path and name."""


@dataclass(frozen=True, slots=True)
class DraftContent:
    """A document without its secrets, and the secrets."""

    document: Json
    secrets: Secrets

    def opened_for(self, person: int) -> Json:
        """Return the document with the secrets that this person typed, for checks and for starting it.

        Never to be shown. The placeholders of others' secrets stay: whoever has the draft's link could otherwise send
        them anywhere, by changing another argument of the step.
        """
        own = {key: secret for key, secret in self.secrets.items() if secret[0] == person}
        return _with_parameters(self.document, lambda place, values: _restored(place, values, own))


def content_of(document: Json, known: Secrets, *, by: int) -> DraftContent:
    """Set aside the secrets of a document, which `by` typed; placeholders in it stand for `known` ones."""
    found: dict[str, Any] = {}

    def set_aside(place: tuple[Any, Any], values: dict[str, Any]) -> Any:
        usable = dict(known) if PLACEHOLDER_KEY in json.dumps(values) else {}
        wanted = Counter(_key(place, path, name) for path, name in find_placeholders(values)) if usable else Counter()
        while True:
            redacted = redacted_parameters(place[0], _restored(place, values, usable))
            plain = json.loads(without_macs(redacted.text))
            secrets = {_key(place, secret.path, secret.name): secret.value for secret in redacted.secrets}
            there = Counter(_key(place, path, name) for path, name in find_placeholders(plain)) if usable else wanted
            # A secret that would not be set aside as before, such as inside a longer word, would be shown.
            shown = [
                key
                for key, count in wanted.items()
                if key in usable and (there[key] < count or secrets.get(key) != usable[key][1])
            ]
            if not shown:
                break
            for key in shown:
                del usable[key]
        for key, value in secrets.items():
            before = usable.get(key)
            found[key] = before if before is not None and before[1] == value else [by, value]
        return plain if redacted.secrets else values

    return DraftContent(_with_parameters(document, set_aside), found)


def typists_of(document: Json, secrets: Secrets) -> dict[str, int]:
    """Return who typed each secret of the steps (the key of a user), by its dotted path in the document."""
    steps = document.get("steps") if isinstance(document, dict) else None
    found = {}
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        if not isinstance(step, dict) or not isinstance(step.get("parameters"), dict):
            continue
        for path, name in find_placeholders(step["parameters"]):
            secret = secrets.get(_key(_place_of(step), path, name))
            if secret is not None:
                found[f"steps.{index}.parameters.{path}"] = secret[0]
    return found


def _key(place: tuple[Any, Any], path: str, name: str) -> str:
    return json.dumps([*place, path, name])


def _restored(place: tuple[Any, Any], values: Any, secrets: Secrets) -> Any:
    if not secrets or PLACEHOLDER_KEY not in json.dumps(values):
        return values

    def known(name: str, mac: str, path: str) -> Any:
        return secrets[_key(place, path, name)][1]

    return restore_secrets(values, known)


def _with_parameters(document: Json, change: Any) -> Json:
    """Return the document with each step's parameters and the memory changed, in their order."""
    if not isinstance(document, dict):
        return document
    changed = dict(document)
    steps, memory = document.get("steps"), document.get("memory")
    if isinstance(steps, list):
        changed["steps"] = [_with_own(step, change) for step in steps]
    if isinstance(memory, dict):
        changed["memory"] = change((None, None), memory)
    return changed


def _with_own(step: Any, change: Any) -> Any:
    if not isinstance(step, dict) or not isinstance(step.get("parameters"), dict):
        return step
    return {**step, "parameters": change(_place_of(step), step["parameters"])}


def _place_of(step: Mapping[str, Any]) -> tuple[str | None, int | None]:
    tool = step.get("tool")
    return tool if isinstance(tool, str) else None, step_number(step)
