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
from approvals.policy_language.conditions import check_rows, compile_rows, sentence_of
from approvals.requests.privacy import hidden_from
from catalog.calls.privacy import Hidden, is_mask, mask, sees_private
from catalog.core.canonical_json import canonical_text

Path = tuple[str, ...]
MOST_DECODED = 5
"""How often a text may be percent-encoded before it counts as one that hides where it leads."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?//")
SECRET = "$secret"  # noqa: S105 (the mark that stands where a secret was)


def check_grant_rows(rows: object, path: str = "arguments") -> list[dict[str, Any]]:
    """Return the rows in their plain form; raise ParameterError, its paths under `path`."""
    checked = check_rows(rows, path)
    for number, row in enumerate(checked):
        if SECRET in row["path"].split(".") or SECRET in canonical_text(row.get("value")):
            raise GrantRefused(f"{path}.{number}", "A secret cannot be compared: say with exists that any will do.")
    return checked


def covers(rows: list[dict[str, Any]], arguments: Mapping[str, Any]) -> bool:
    """Say whether every row holds of the arguments, and every argument is spoken of by some row."""
    if not compile_rows(rows).matches(arguments) or any(leads_out(row, arguments) for row in rows):
        return False
    named = {tuple(row["path"].split(".")) for row in rows}
    return all(any(leaf[:length] in named for length in range(1, len(leaf) + 1)) for leaf in leaves(arguments))


def leads_out(row: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Say whether a text that begins as the row asks leads elsewhere: reports/../secrets, https://example.com.evil."""
    if row["operator"] != "starts_with":
        return False
    value = leaf_at(arguments, row["path"].split("."))
    return _climbs(value) or _is_beside(row["value"], value)


def _climbs(text: str) -> bool:
    """Say whether a path goes up, however often its dots and slashes are percent-encoded."""
    for _ in range(MOST_DECODED):
        if ".." in re.split(r"[/\\]", re.sub(r"[\t\r\n]", "", text)):  # readers of addresses leave these out
            return True
        before, text = text, unquote(text)
        if before == text:
            return False
    return True


def _is_beside(begin: str, text: str) -> bool:
    """Say whether an address only begins with the same letters: a host or folder with a longer name is another."""
    if _ADDRESS.match(begin) is None or begin.endswith("/"):
        return False
    return text[len(begin) : len(begin) + 1] not in ("", "/", "?", "#")


def in_words(rows: Iterable[Mapping[str, Any]]) -> str:
    """Say what a call must be made with."""
    rows = list(rows)
    shown = [row for row in rows if not is_mask(row.get("value"))]
    said = [
        f"{row.path} may be anything" if row.operator == "exists" else sentence_of(row)
        for row in compile_rows(shown).rows
    ]
    said += [f"{row['path']} is something private" for row in rows if row not in shown]
    return " and ".join(said) or "it is called without arguments"


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of everything inside that holds nothing more."""
    inner = _inside(value)
    if inner is None:
        yield from [path] if path else []
        return
    for step, each in inner:
        yield from leaves(each, (*path, step))


def leaf_at(value: Any, path: Iterable[str]) -> Any:
    """Return what stands at a path that leads somewhere, step by step: a name may hold dots."""
    for step in path:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _inside(value: Any) -> list[tuple[str, Any]] | None:
    """Return what is inside a value, by step; None of what holds nothing, and of what stands for a secret."""
    if isinstance(value, Mapping) and value and SECRET not in value:
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
    free = None if sees_private(viewer) else Hidden(everything=True)

    def shown(source: ApprovalRequest | None, of: list[dict[str, Any]]) -> list[dict[str, Any]]:
        mask_of = hidden.get(source.call_id) if source is not None else free
        return [_mask_row(row, mask_of) for row in of] if mask_of is not None else of

    return {pk: shown(source, of) for pk, (source, of) in rows.items()}


def _mask_row(row: dict[str, Any], hidden: Hidden) -> dict[str, Any]:
    is_private = hidden.everything or row["path"].partition(".")[0] in hidden.names
    return row | {"value": mask(row["value"])} if is_private and "value" in row else row
