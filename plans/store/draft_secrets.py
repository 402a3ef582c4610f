"""Secrets that people type into a draft: set aside when it is stored, put back where they stood when it is checked.

Nobody sees them again, in the draft or its versions: there they are `{"$secret": name}`. A placeholder that was moved
to another field, step or tool gets no value back.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.core.canonical_json import Json
from catalog.secrets.placeholders import PLACEHOLDER_KEY, restore_secrets, without_macs
from plans.documents.merging import step_number
from plans.store.plan_documents import redacted_parameters

Secrets = Mapping[str, Any]
"""Values by where they stood: tool and number of the step, path and name."""


@dataclass(frozen=True, slots=True)
class DraftContent:
    """A document without its secrets, and the secrets."""

    document: Json
    secrets: Secrets

    @property
    def opened(self) -> Json:
        """The document with its secrets, for checks and for starting it; never to be shown."""
        return _with_parameters(self.document, lambda place, values: _restored(place, values, self.secrets))


def content_of(document: Json, *known: Secrets) -> DraftContent:
    """Set aside the secrets of a document; placeholders in it stand for `known` ones."""
    found: dict[str, Any] = {}

    def set_aside(place: tuple[Any, Any], values: dict[str, Any]) -> Any:
        for secrets in known:
            values = _restored(place, values, secrets)
        redacted = redacted_parameters(place[0], values)
        if not redacted.secrets:
            return values
        for secret in redacted.secrets:
            found[_key(place, secret.path, secret.name)] = secret.value
        return json.loads(without_macs(redacted.text))

    return DraftContent(_with_parameters(document, set_aside), found)


def _key(place: tuple[Any, Any], path: str, name: str) -> str:
    return json.dumps([*place, path, name])


def _restored(place: tuple[Any, Any], values: Any, secrets: Secrets) -> Any:
    if not secrets or PLACEHOLDER_KEY not in json.dumps(values):
        return values

    def known(name: str, mac: str, path: str) -> Any:
        return secrets[_key(place, path, name)]

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
    tool = step.get("tool")
    place = (tool if isinstance(tool, str) else None, step_number(step))
    return {**step, "parameters": change(place, step["parameters"])}
