"""Line numbers of values in a JSON or YAML text, for problems that name a path."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from catalog.core.json_paths import bounded_member_path, enclosing_paths
from catalog.core.yaml_documents import yaml_lines

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)


_DECODER = json.JSONDecoder(strict=False)


def find_lines(text: str, paths: Set[str]) -> dict[str, int]:
    """Return dotted path → line, counted from 1; a path not in the text gets the line of its nearest parent."""
    known_paths = _with_parents(paths)
    return _lines_in(_values(text, known_paths), paths, known_paths)


def find_yaml_lines(text: str, paths: Set[str]) -> dict[str, int]:
    """Return the same for a readable YAML text."""
    return _lines_in(yaml_lines(text), paths, _with_parents(paths)) if paths else {}


def _with_parents(paths: Set[str]) -> Set[str]:
    return {parent for path in paths for parent in enclosing_paths(path)}


def _lines_in(values: Iterable[tuple[str, int]], paths: Set[str], known_paths: Set[str]) -> dict[str, int]:
    seen: dict[str, int] = {}
    for path, line in values:
        if path in known_paths:
            seen.setdefault(path, line)
            if len(seen) == len(known_paths):
                break
    return {path: next((seen[each] for each in enclosing_paths(path) if each in seen), 1) for path in paths}


@dataclass(slots=True)
class _Container:
    """An object or list being read: its path, and the name or index of its next value."""

    path: str
    step: str | int | None

    def place(self) -> str:
        return bounded_member_path(self.path, self.step or 0)


def _values(text: str, known_paths: Set[str]) -> Iterator[tuple[str, int]]:
    """Yield the path and line of each value, at least of those at `known_paths`; for a member, the line of its name."""
    stack = [_Container("", step="")]
    line, last, position, skips = 1, 0, 0, True
    while known_paths and (match := _TOKEN.search(text, position)):
        position = match.end()
        line += text.count("\n", last, match.start())
        last = match.start()
        path = _consume_token(match[0], stack)
        if path is None:
            continue
        yield path, line
        if skips and match[0] in _BEGINNINGS and path not in known_paths:
            try:
                _value, position = _DECODER.raw_decode(text, last)
            except (ValueError, RecursionError):
                skips = False  # not JSON: to try again in each container would take long
            else:
                stack.pop()


def _consume_token(piece: str, stack: list[_Container]) -> str | None:
    """Process one token; return the path of the value that this token begins, or None."""
    inside = stack[-1]
    if piece in _ENDS:
        del stack[max(1, len(stack) - 1) :]
    elif piece == ",":
        inside.step = inside.step + 1 if isinstance(inside.step, int) else None
    elif inside.step is None:
        try:
            inside.step = str(json.loads(piece))
        except ValueError:
            inside.step = piece
        return inside.place()
    elif piece != ":":
        path = inside.place() if len(stack) > 1 else ""
        if piece in _BEGINNINGS:
            stack.append(_Container(path, _BEGINNINGS[piece]))
        return path
    return None


_BEGINNINGS: Mapping[str, int | None] = {"{": None, "[": 0}
_ENDS = frozenset("}]")
