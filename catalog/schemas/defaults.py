"""Defaults of a schema: the values of members that arguments leave out, in nested objects and entries of lists too."""

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import jsonschema_rs

from catalog.core.canonical_json import canonical_text, json_size, normalize_numbers
from catalog.core.json_paths import JSONPath, dotted, value_at, without_paths
from catalog.errors import field_error
from catalog.schemas.resolver import (
    Schema,
    child_schemas,
    index_references,
    referenced_schemas,
    schemas_in_place,
    subschemas,
)

"""Steps to a value: names of members and indexes of entries."""

MAX_DEFAULTS_DEPTH = 64
MAX_DEFAULTS_BYTES = 256 * 1024
"""Maximum bytes of all defaults of one call, written as JSON."""
MAX_VISITS = 400_000
"""Maximum subschemas visited for one call."""
MAX_CHOICES = 8
"""Maximum ways to fill in arguments that fit several alternatives."""
BYTES_PER_VISIT = 16
"""Bytes of a value whose validation counts as one visit."""
NO_DEFAULTS = "[]"
"""Stored for a call without defaults."""
_ALTERNATIVE_KEYWORDS = ("anyOf", "oneOf")
_ROOT = "urn:schema"
_MISSING = object()


@dataclass(frozen=True, slots=True)
class FilledArguments:
    """Arguments with defaults filled in, and the paths of these defaults.

    `choices` is the number of ways to fill them in: more than 1 if they fit several alternatives of the schema.
    """

    arguments: dict[str, Any]
    paths: tuple[JSONPath, ...] = ()
    choices: int = 1


@dataclass(frozen=True, slots=True)
class MissingArguments:
    """Members that arguments leave out: `defaults` by path, and `undecided`, the paths of members without a default."""

    defaults: Mapping[JSONPath, Any]
    undecided: tuple[JSONPath, ...]


class SchemaDefaults:
    """The defaults in one schema; thread-safe."""

    __slots__ = ("_named", "_schema", "_validators")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._validators = _Validators(schema)
        has_any = any("default" in each for _, each in subschemas(schema))
        self._named = index_references(schema) if has_any else None

    def __bool__(self) -> bool:
        return self._named is not None

    def fill(self, arguments: dict[str, Any], choice: int = 0) -> FilledArguments:
        """Return the arguments with the defaults of omitted members, also of members omitted inside a default.

        If the arguments fit several alternatives of the schema, `choice` is the number of the alternative to use.
        Raises ParameterError if the defaults of the call are too large or too many.
        """
        if self._named is None:
            return FilledArguments(arguments)
        filler = _Filler(self._named, self._validators, choice)
        filled = filler.fill([self._schema], arguments, (), MAX_DEFAULTS_DEPTH)
        return FilledArguments(filled, tuple(filler.paths), min(filler.choices, MAX_CHOICES))

    def all_fillings(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Return one filled copy of the arguments per alternative that they fit. Raises ParameterError like `fill`."""
        first = self.fill(arguments)
        return [first.arguments, *(self.fill(arguments, choice).arguments for choice in range(1, first.choices))]

    def missing(self, arguments: dict[str, Any]) -> MissingArguments:
        """Return the members that valid arguments leave out, for display. Raises ParameterError like `fill`."""
        named = index_references(self._schema) if self._named is None else self._named
        filler = _Filler(named, self._validators)
        filled = filler.fill([self._schema], arguments, (), MAX_DEFAULTS_DEPTH)
        return MissingArguments({path: value_at(filled, path) for path in filler.paths}, tuple(filler.undecided))


def fill_defaults(schema: Schema, arguments: dict[str, Any]) -> FilledArguments:
    """Return the arguments with the schema's defaults filled in. Raises ParameterError like `SchemaDefaults.fill`."""
    return SchemaDefaults(schema).fill(arguments)


class _Filler:
    """State while the defaults of one call are filled in: the paths filled so far, and the work done."""

    def __init__(self, named: dict[str, object], validators: "_Validators", choice: int = 0) -> None:
        self._named, self._validators, self._choice = named, validators, choice
        self._bytes = self._visits = 0
        self.choices = 1
        self.paths: list[JSONPath] = []
        self.undecided: list[JSONPath] = []

    def fill(self, schemas: Iterable[object], value: Any, path: JSONPath | None, depth: int) -> Any:
        """Return a value with the defaults of all `schemas` filled in; the same object if no default is missing.

        If `path` is None, the value is part of a default, and the paths filled in it are not recorded.
        """
        if not isinstance(value, dict | list) or not depth:
            return value
        forms = self._applicable(schemas, value)
        members = self._entries(forms, value) if isinstance(value, list) else self._members(forms, value)
        changed: dict[Any, Any] = {}
        for step, declared in members:
            inner = None if path is None else (*path, step)
            if isinstance(value, list) or step in value:
                before: Any = value[step]  # type: ignore[index] # a name for an object, an index for a list
                after = self.fill(declared, before, inner, depth - 1)
                if after is not before:
                    changed[step] = after
                continue
            default = self._default(declared)
            if default is not _MISSING:
                changed[step] = self.fill(declared, default, None, depth - 1)
                if inner is not None:
                    self.paths.append(inner)
            elif inner is not None:
                self.undecided.append(inner)
        if not changed:
            return value
        if isinstance(value, dict):
            return value | changed
        return [changed.get(index, each) for index, each in enumerate(value)]

    def _members(self, forms: list[Schema], value: dict[str, Any]) -> Iterator[tuple[str, list[object]]]:
        declared: dict[str, list[object]] = {}
        for form in forms:
            for name, member in form.get("properties", {}).items():
                declared.setdefault(name, []).append(member)
        for form in forms:
            patterns: dict[str, object] = form.get("patternProperties", {})
            others = form.get("additionalProperties")
            if not patterns and not (isinstance(others, dict) and others):
                continue
            self._visits += len(value) * (1 + len(patterns))
            for name in value:
                found = [each for pattern, each in patterns.items() if self._validators.fits_pattern(pattern, name)]
                if not found and name not in form.get("properties", {}):
                    found = [others]
                if found:
                    declared.setdefault(name, []).extend(found)
        yield from declared.items()

    def _entries(self, forms: list[Schema], value: list[Any]) -> Iterator[tuple[int, list[object]]]:
        first = [[*child_schemas(form, "prefixItems")] for form in forms]
        rest = [[*child_schemas(form, "items")] for form in forms]
        for index, each in enumerate(value):
            if isinstance(each, dict | list):
                yield (
                    index,
                    [
                        schema
                        for own, others in zip(first, rest, strict=True)
                        for schema in (own[index : index + 1] if index < len(own) else others)
                    ],
                )

    def _default(self, declared: list[object]) -> Any:
        """Return a canonical copy of the first default that these schemas declare; _MISSING if they declare none."""
        for schema in (*declared, *schemas_in_place(declared, self._named, ("allOf",))):
            if isinstance(schema, dict) and "default" in schema:
                self._bytes += json_size(schema["default"])
                if self._bytes > MAX_DEFAULTS_BYTES:
                    message = f"With their defaults, the arguments would exceed {MAX_DEFAULTS_BYTES:,} bytes."
                    raise field_error("", "too_large", f"{message} Send fewer values.")
                return normalize_numbers(deepcopy(schema["default"]))
        return _MISSING

    def _applicable(self, schemas: Iterable[object], value: Any) -> list[Schema]:
        """Return these schemas and all schemas that they apply to the same value, without duplicates."""
        found: dict[int, Schema] = {}
        left = [*schemas][::-1]
        while left:
            schema = left.pop()
            self._visits += 1
            if not isinstance(schema, dict) or id(schema) in found:
                continue
            found[id(schema)] = schema
            more = [*child_schemas(schema, "allOf"), *referenced_schemas(schema, self._named)]
            for word in _ALTERNATIVE_KEYWORDS:
                self._visits += len(schema.get(word, ()))
                possible = [each for each in child_schemas(schema, word) if self._may_apply(each, value)]
                if len(possible) > 1:
                    self._visits += len(possible) * json_size(value) // BYTES_PER_VISIT
                    self._check_visits()
                    possible = [each for each in possible if self._validators.accepts(each, value)]
                    self.choices = max(self.choices, len(possible))
                more += possible[min(self._choice, len(possible) - 1) :][:1]
            more += self._conditional(schema, value)
            left += more[::-1]
        self._check_visits()
        return list(found.values())

    def _conditional(self, schema: Schema, value: Any) -> Iterator[object]:
        """Yield the schemas whose conditions the value meets."""
        if "if" in schema and not schema.keys().isdisjoint(("then", "else")):
            self._visits += json_size(value) // BYTES_PER_VISIT
            self._check_visits()
            yield schema.get("then" if self._validators.accepts(schema["if"], value) else "else")
        if isinstance(value, dict):
            yield from (each for name, each in schema.get("dependentSchemas", {}).items() if name in value)

    def _check_visits(self) -> None:
        if self._visits > MAX_VISITS:
            raise field_error("", "too_complex", "The arguments are too large to fill in their defaults.")

    def _may_apply(self, schema: object, value: Any) -> bool:
        """Return whether the value has the type, the constants and the members that an alternative demands."""
        if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            schema = next(referenced_schemas({"$ref": schema["$ref"]}, self._named), schema)
        if not isinstance(schema, dict):
            return schema is not False
        kind, kinds = "array" if isinstance(value, list) else "object", schema.get("type")
        if kinds is not None and kind not in (kinds if isinstance(kinds, list) else [kinds]):
            return False
        if isinstance(value, list):
            return True
        properties: Mapping[str, Any] = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        return (
            all(name in value for name in schema.get("required", ()))
            and not (closed and value.keys() - properties.keys())
            and all(
                value[name] == member["const"]
                for name, member in properties.items()
                if name in value and isinstance(member, dict) and "const" in member
            )
        )


class _Validators:
    """Validators of alternatives, conditions and patterns inside one schema, compiled when arguments need them."""

    __slots__ = ("_compiled", "_patterns", "_pointers", "_registry", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._registry: jsonschema_rs.Registry | None = None
        self._pointers: dict[int, str] = {}
        self._compiled: dict[int, jsonschema_rs.Draft202012Validator] = {}
        self._patterns: dict[str, jsonschema_rs.Draft202012Validator] = {}

    def accepts(self, alternative: object, value: Any) -> bool:
        """Return whether a value is valid by a subschema, which must be the very object inside the schema."""
        if not isinstance(alternative, dict):
            return alternative is not False
        compiled = self._compiled.get(id(alternative))
        if compiled is None:
            if self._registry is None:
                self._pointers = {id(place): text for text, place in index_references(self._schema).items()}
                self._registry = jsonschema_rs.Registry([(_ROOT, self._schema)])
            compiled = self._compiled[id(alternative)] = jsonschema_rs.Draft202012Validator(
                {"$ref": _ROOT + quote(self._pointers[id(alternative)], safe="#/~")},
                registry=self._registry,
                offline=True,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        return compiled.is_valid(value)

    def fits_pattern(self, pattern: str, name: str) -> bool:
        if pattern not in self._patterns:
            self._patterns[pattern] = jsonschema_rs.Draft202012Validator(
                {"pattern": pattern}, offline=True, pattern_options=jsonschema_rs.RegexOptions()
            )
        return self._patterns[pattern].is_valid(name)


def paths_from_store(text: str | None) -> tuple[JSONPath, ...]:
    """Parse the stored paths of a call's defaults; none for a call stored before defaults were filled in."""
    return tuple(map(tuple, json.loads(text))) if text else ()


def dotted_paths(text: str | None) -> list[str]:
    return [dotted(path) for path in paths_from_store(text)]


def given_text(text: str, defaults: str | None) -> str:
    """Return a call's stored arguments without the defaults that were filled in, as canonical text."""
    paths = paths_from_store(defaults)
    return canonical_text(without_paths(json.loads(text), paths)) if paths else text
