"""Private data in calls: masking, and access to single masked fields for authorised viewers.

A mask such as `{"$private": "string"}` replaces a value and names its JSON type.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User

from catalog.access.roles import ADMINISTRATOR, REVIEWER, agent_token_of, has_role
from catalog.core.canonical_json import json_type_of
from catalog.core.json_paths import member_path
from catalog.errors import field_error
from catalog.models import Call

PRIVATE_MARKER = "$private"
UNMASKED_FIELDS = frozenset({"query_type", "output_key", "success"})
"""The fields of a standard response that contain no personal data."""
PRIVATE_NOTICE = "This text is private. Only the requester, reviewers and administrators can read it."
MAX_REPEATED_NAME = 80
"""Maximum characters of a name repeated in an error."""


@dataclass(frozen=True, slots=True)
class ResponseField:
    """One value in a response: its dotted path and its JSON type."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class PrivateCallParts:
    """The private arguments of one call: those in `names`, or all of them."""

    names: frozenset[str] = frozenset()
    everything: bool = False

    def mask_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        hidden = set(arguments) if self.everything else self.names
        return {name: mask(value) if name in hidden else value for name, value in arguments.items()}


PrivacyJudge = Callable[[Collection[Call]], Mapping[int, PrivateCallParts]]
_privacy_judges: list[PrivacyJudge] = []


def register_privacy_judge(judge: PrivacyJudge) -> None:
    if judge not in _privacy_judges:
        _privacy_judges.append(judge)


def private_parts_of(calls: Collection[Call]) -> Mapping[int, PrivateCallParts]:
    """Return the private arguments of these calls by primary key; calls without private arguments are left out."""
    return {pk: hidden for judge in _privacy_judges for pk, hidden in judge(calls).items()}


def can_see_private(viewer: User | AnonymousUser) -> bool:
    """Return whether the viewer sees everyone's private data: reviewers and administrators, never through an agent."""
    return agent_token_of(viewer) is None and has_role(viewer, REVIEWER, ADMINISTRATOR)


def is_own_call(viewer: User, call: Call) -> bool:
    """Return whether the viewer owns the call. An agent's token owns only the calls made with that token."""
    token = agent_token_of(viewer)
    return call.token_id == token.pk if token is not None else call.requested_by_id == viewer.pk


def mask(value: Any) -> Any:
    """Return a JSON value with every string, number, boolean and null in it replaced by a mask."""
    if isinstance(value, Mapping):
        return {name: mask(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [mask(inner) for inner in value]
    return {PRIVATE_MARKER: mask_type_of(value)}


def mask_type_of(value: Any) -> str:
    """Return the JSON type of a value that its mask names; for integers this is `number`."""
    return "number" if (kind := json_type_of(value)) == "integer" else kind


def is_mask(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(is_mask, value))
    return isinstance(value, Mapping) and (PRIVATE_MARKER in value or any(map(is_mask, value.values())))


def mask_response(response: Any) -> Any:
    """Return a standard response of the same shape, with all data of the tool and of its caller masked."""
    if not isinstance(response, Mapping):
        return response if response is None else mask(response)
    return {name: value if name in UNMASKED_FIELDS else mask(value) for name, value in response.items()}


def mask_content(blocks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return content blocks with everything but their types masked, and without the addresses of their bytes."""
    return [
        {name: each if name == "type" else mask(each) for name, each in block.items() if name != "url"}
        for block in blocks
    ]


def masked_fields(response: Any, path: str = "") -> Iterator[ResponseField]:
    if isinstance(response, Mapping):
        names = (name for name in response if path or name not in UNMASKED_FIELDS)
        for name in names:
            yield from masked_fields(response[name], member_path(path, name))
    elif isinstance(response, list):
        for index, inner in enumerate(response):
            yield from masked_fields(inner, member_path(path, index))
    else:
        yield ResponseField(path, mask_type_of(response))


def field_at(response: Any, path: str) -> Any:
    """Return the single value at a dotted path of a response. Raises ParameterError that lists existing names."""
    value = value_at(response, path)
    if isinstance(value, Mapping | list) and value:
        names = ", ".join(name[:MAX_REPEATED_NAME] for name in list(_container_items(value))[:5])
        message = f"{_location(path)} contains several values. Name one of them: {names}."
        raise field_error("path", "not_a_field", message)
    return value


def value_at(whole: Any, path: str) -> Any:
    """Return the value at a dotted path of a JSON value. Raises ParameterError that lists existing names."""
    value, rest, done = whole, path, ""
    while rest:
        members = _container_items(value)
        name = rest if rest in members else rest.partition(".")[0]
        if name not in members:
            near = (
                difflib.get_close_matches(name[:MAX_REPEATED_NAME], list(members)[:1000], n=3, cutoff=0.4)
                or list(members)[:5]
            )
            there = f"it has {', '.join(each[:MAX_REPEATED_NAME] for each in near)}" if near else "it is empty"
            raise field_error(
                "path", "missing_path", f"{_location(done)} has no {name[:MAX_REPEATED_NAME]!r}; {there}."
            )
        value, rest, done = members[name], rest[len(name) + 1 :], member_path(done, name)
    return value


def _container_items(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return {str(index): inner for index, inner in enumerate(value)} if isinstance(value, list) else {}


def _location(done: str) -> str:
    return done[: 3 * MAX_REPEATED_NAME] if done else "The response"
