"""The conditions of a grant: rows as in policies, which must speak of everything a call is made with.

What no row names is not covered: a call with an argument that the grant does not speak of goes to people. `exists`
says that any value will do.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from django.contrib.auth.models import User

from approvals.errors import GrantRefused
from approvals.models import ApprovalRequest, Grant
from approvals.policy_language.conditions import check_conditions, compile_conditions, condition_sentence
from approvals.requests.privacy import hidden_from
from catalog.calls.privacy import PrivateCallParts, can_see_private, is_mask, mask
from catalog.core.canonical_json import canonical_text

ArgumentPath = tuple[str, ...]
MAX_DECODINGS = 5
"""How often a text may be percent-encoded before it counts as one that hides where it leads."""
_URL_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?//")
PLACEHOLDER_KEY = "$secret"


def check_grant_conditions(rows: object, path: str = "arguments") -> list[dict[str, Any]]:
    """Return the rows in their plain form; raise ParameterError, its paths under `path`."""
    checked = check_conditions(rows, path)
    for number, row in enumerate(checked):
        if PLACEHOLDER_KEY in row["path"].split(".") or PLACEHOLDER_KEY in canonical_text(row.get("value")):
            raise GrantRefused(f"{path}.{number}", "A secret cannot be compared: say with exists that any will do.")
    return checked


def conditions_cover(rows: list[dict[str, Any]], arguments: Mapping[str, Any]) -> bool:
    """Say whether every row holds of the arguments, and every argument is spoken of by some row."""
    if not compile_conditions(rows).matches(arguments) or any(escapes_prefix(row, arguments) for row in rows):
        return False
    named = {tuple(row["path"].split(".")) for row in rows}
    return all(any(leaf[:length] in named for length in range(1, len(leaf) + 1)) for leaf in leaf_paths(arguments))


def escapes_prefix(row: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Say whether a text that begins as the row asks leads elsewhere: reports/../secrets, https://example.com.evil."""
    if row["operator"] != "starts_with":
        return False
    value = value_at_path(arguments, row["path"].split("."))
    return _has_parent_segment(value) or _continues_name(row["value"], value)


def _has_parent_segment(text: str) -> bool:
    """Say whether a path goes up, however often its dots and slashes are percent-encoded."""
    for _ in range(MAX_DECODINGS):
        if ".." in re.split(r"[/\\]", re.sub(r"[\t\r\n]", "", text)):  # readers of addresses leave these out
            return True
        before, text = text, unquote(text)
        if before == text:
            return False
    return True


def _continues_name(begin: str, text: str) -> bool:
    """Say whether an address only begins with the same letters: a host or folder with a longer name is another."""
    if _URL_PREFIX.match(begin) is None or begin.endswith("/"):
        return False
    return text[len(begin) : len(begin) + 1] not in ("", "/", "?", "#")


def conditions_sentence(rows: Iterable[Mapping[str, Any]]) -> str:
    """Say what a call must be made with."""
    rows = list(rows)
    shown = [row for row in rows if not is_mask(row.get("value"))]
    said = [
        f"{row.path} may be anything" if row.operator == "exists" else condition_sentence(row)
        for row in compile_conditions(shown).rows
    ]
    said += [f"{row['path']} is something private" for row in rows if row not in shown]
    return " and ".join(said) or "it is called without arguments"


def leaf_paths(value: Any, path: ArgumentPath = ()) -> Iterator[ArgumentPath]:
    """Yield the paths of everything inside that holds nothing more."""
    inner = _children(value)
    if inner is None:
        yield from [path] if path else []
        return
    for step, each in inner:
        yield from leaf_paths(each, (*path, step))


def value_at_path(value: Any, path: Iterable[str]) -> Any:
    """Return what stands at a path that leads somewhere, step by step: a name may hold dots."""
    for step in path:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """Return what is inside a value, by step; None of what holds nothing, and of what stands for a secret."""
    if isinstance(value, Mapping) and value and PLACEHOLDER_KEY not in value:
        return [(str(name), each) for name, each in value.items()]
    if isinstance(value, list) and value:
        return [(str(place), each) for place, each in enumerate(value)]
    return None


def conditions_for(viewer: User, grants: Iterable[Grant]) -> Mapping[int, list[dict[str, Any]]]:
    """Return the rows of these grants by their keys, as the viewer may see them: they repeat a call's arguments.

    Of one that was made freely nobody can say whose data its rows hold: only who sees private data sees their values.
    """
    rows = {grant.pk: (grant.created_from, list(grant.conditions)) for grant in grants}
    hidden = dict(hidden_from(viewer, [source for source, _ in rows.values() if source is not None]))
    free = None if can_see_private(viewer) else PrivateCallParts(everything=True)

    def shown(source: ApprovalRequest | None, of: list[dict[str, Any]]) -> list[dict[str, Any]]:
        mask_of = hidden.get(source.call_id) if source is not None else free
        return [_mask_condition(row, mask_of) for row in of] if mask_of is not None else of

    return {pk: shown(source, of) for pk, (source, of) in rows.items()}


def _mask_condition(row: dict[str, Any], hidden: PrivateCallParts) -> dict[str, Any]:
    is_private = hidden.everything or row["path"].partition(".")[0] in hidden.names
    return row | {"value": mask(row["value"])} if is_private and "value" in row else row
