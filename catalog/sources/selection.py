"""The choice of operations that an OpenAPI source imports: by tag, path and name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from catalog.core.canonical_json import parse_json
from catalog.errors import MalformedJSON, TooLarge, field_error

KINDS = ("tags", "paths", "operations")
MAX_CHOSEN, MAX_CHOSEN_LENGTH = 200, 300


@dataclass(frozen=True, slots=True)
class Selection:
    """The operations to import: those that match at least one choice, or all if there is no choice.

    A path includes those below it: `/user` includes `/user/emails`, but not `/users`. An operation is named by its
    `operationId`, or by method and path, such as `GET /user`.
    """

    tags: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    operations: frozenset[str] = frozenset()

    @classmethod
    def from_json(cls, only: Mapping[str, Sequence[str]]) -> Self:
        return cls(frozenset(only.get("tags", ())), tuple(only.get("paths", ())), frozenset(only.get("operations", ())))

    def choices_for(self, names: Iterable[str], path: str, tags: Iterable[object]) -> set[tuple[str, str]]:
        """Return the choices that match an operation with these names, path and tags, each as kind and value."""
        found = {("tags", tag) for tag in tags if isinstance(tag, str) and tag in self.tags}
        found |= {("operations", name) for name in names if name in self.operations}
        return found | {("paths", each) for each in self.paths if f"{path}/".startswith(f"{each.rstrip('/')}/")}

    def choices(self) -> Iterator[tuple[str, str]]:
        yield from (("tags", each) for each in sorted(self.tags))
        yield from (("paths", each) for each in self.paths)
        yield from (("operations", each) for each in sorted(self.operations))


def check_only(only: Any) -> dict[str, list[str]]:
    """Return the field `only` of a source, checked and without empty lists. Raises ParameterError naming the field."""
    if not isinstance(only, Mapping):
        raise field_error("only", "invalid", f"`only` is an object with lists of {', '.join(KINDS)}.")
    for kind, values in only.items():
        if kind not in KINDS:
            raise field_error(f"only.{kind[:80]}", "unknown", f"Choose by {', '.join(KINDS)}.")
        if not isinstance(values, list) or len(values) > MAX_CHOSEN:
            raise field_error(f"only.{kind}", "invalid", f"Give a list of at most {MAX_CHOSEN} texts.")
        for value in values:
            if not isinstance(value, str) or not value.strip() or len(value) > MAX_CHOSEN_LENGTH or "\0" in value:
                message = f"Each is a text of 1 to {MAX_CHOSEN_LENGTH} characters."
                raise field_error(f"only.{kind}", "invalid", message)
            if kind == "paths" and not value.startswith("/"):
                raise field_error("only.paths", "invalid", f"The path {value[:80]!r} does not start with '/'.")
    return {kind: list(dict.fromkeys(only[kind])) for kind in KINDS if only.get(kind)}


def parse_only(lines: Iterable[str]) -> dict[str, list[str]]:
    """Parse `tag=NAME`, `path=/PREFIX`, `operation=NAME` or a JSON object. Raises ParameterError naming the field."""
    only: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("{"):
            try:
                parsed = check_only(parse_json(line))
            except (MalformedJSON, TooLarge) as error:
                raise field_error("only", "invalid", str(error)) from None
        else:
            kind, separator, value = (part.strip() for part in line.partition("="))
            if not separator or f"{kind}s" not in KINDS:
                message = f"Write tag=NAME, path=/PREFIX or operation=NAME, not {line[:80]!r}."
                raise field_error("only", "invalid", message)
            parsed = {f"{kind}s": [value]}
        for kind, values in parsed.items():
            only.setdefault(kind, []).extend(values)
    return check_only(only)


def write_only(only: Mapping[str, Sequence[str]]) -> list[str]:
    """Return `only` as lines that `parse_only` reads."""
    return [f"{kind.removesuffix('s')}={value}" for kind, value in Selection.from_json(only).choices()]
