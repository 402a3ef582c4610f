"""Paths into JSON values, as steps (member names and list indexes) or, for display only, as text with dots."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

JSONPath = tuple[str | int, ...]

LONGEST_BOUNDED_PATH = 500


def dotted(path: Iterable[object]) -> str:
    return ".".join(map(str, path))


def member_path(path: str, step: object) -> str:
    return f"{path}.{step}" if path else str(step)


def bounded_member_path(path: str, step: str | int) -> str:
    """Return the dotted path of a member, limited in length because hostile documents could make it huge."""
    return path if len(path) > LONGEST_BOUNDED_PATH else member_path(path, str(step)[:LONGEST_BOUNDED_PATH])


def enclosing_paths(path: str) -> Iterator[str]:
    """Yield a dotted path, then the path of each container around it, innermost first; the last is empty."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def follow(value: Any, path: Iterable[str | int]) -> Any:
    """Return the value at a path; a text of digits also works as a list index. Raises LookupError if there is none."""
    for step in path:
        if isinstance(value, Mapping):
            value = value[step]
        elif isinstance(value, list):
            value = value[_index(step)]
        else:
            raise LookupError(step)
    return value


def value_at(value: Any, path: Iterable[str | int], default: Any = None) -> Any:
    try:
        return follow(value, path)
    except LookupError:
        return default


def _index(step: str | int) -> int:
    if isinstance(step, str) and step.isascii() and step.isdigit() and len(step) < 10:
        return int(step)
    if isinstance(step, int) and not isinstance(step, bool) and step >= 0:
        return step
    raise LookupError(step)


def without_paths(document: dict[str, Any], paths: Sequence[JSONPath]) -> dict[str, Any]:
    """Return the document without the members at these paths; a path that leads nowhere is ignored."""
    if not paths:
        return document
    tree: dict[str | int, Any] = {}
    for path in paths:
        branch: Any = tree
        for step in path[:-1]:
            branch = None if branch is None else branch.setdefault(step, {})
        if branch is not None:
            branch[path[-1]] = None
    pruned: dict[str, Any] = _without_branches(document, tree)
    return pruned


def _without_branches(value: Any, tree: Mapping[str | int, Any]) -> Any:
    """Return a copy without the members that `tree` marks with None; `tree` is nested like the value."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if tree.get(name, tree) is not None}
        return kept | {name: _without_branches(kept[name], tree[name]) for name in tree.keys() & kept.keys()}
    if isinstance(value, list):
        return [
            _without_branches(each, branch) if (branch := tree.get(index)) else each for index, each in enumerate(value)
        ]
    return value
