"""Between a form and JSON, both ways and without loss: the value that fields spell, the fields that spell a value."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from catalog.core.canonical_json import parse_json
from catalog.errors import MalformedJSON, TooLarge
from catalog.form_fields import MOST_ROWS, FormFields, below, step_name
from catalog.schema_forms import DEEPEST, MOST_FIELDS, Field
from catalog.schemas import Problem
from catalog.schemas.resolver import SchemaMapping, Shape, is_option, nearest_variant, option_text, shape_of

NUMBER = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,4})?", re.ASCII)
# A browser would change these on their way through a field.
UNWRITABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|[\ud800-\udfff]")
LEFT_OUT: Any = object()


def value_of(form: Field) -> tuple[dict[str, Any], list[Problem]]:
    """Return the object a form spells, and what in it spells nothing."""
    reader = _Reader()
    value = reader.read(form)
    return (value if isinstance(value, dict) else {}), reader.problems


class _Reader:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(self, field: Field) -> Any:
        """Return what one place spells, LEFT_OUT for nothing."""
        if field.is_null:
            return None
        read = {"choice": _choice, "number": self._number, "json": self._json, "list": self._list}
        read |= {"group": self._group, "union": self._union}
        return read.get(field.kind, _text)(field)

    def _number(self, field: Field) -> Any:
        text = field.text.strip()
        if not text:
            return self._blank(field)
        return self._parsed(field, text) if NUMBER.fullmatch(text) else field.text

    def _json(self, field: Field) -> Any:
        return self._parsed(field, field.text) if field.text.strip() else self._blank(field)

    def _parsed(self, field: Field, text: str) -> Any:
        try:
            return parse_json(text)
        except (MalformedJSON, TooLarge) as error:
            self.problems.append(Problem(field.path, "json", error.message))
            return LEFT_OUT

    def _blank(self, field: Field) -> Any:
        if field.removable:
            self.problems.append(Problem(field.path, "required", "Fill this in, or remove it."))
        return LEFT_OUT

    def _list(self, field: Field) -> Any:
        items = [self.read(child) for child in field.children]
        while items and items[-1] is LEFT_OUT:
            items.pop()
        for child, item in zip(field.children, items, strict=False):
            if item is LEFT_OUT and not child.removable:
                self.problems.append(Problem(child.path, "required", "This is required."))
        if not items and not field.given:
            return LEFT_OUT
        return [item for item in items if item is not LEFT_OUT]

    def _group(self, field: Field) -> Any:
        if not field.open:
            return LEFT_OUT
        value: dict[str, Any] = {}
        for child in field.children:
            read = self.read(child)
            if child.key is None or self._names_something_new(child, value):
                value[child.label] = read
        return {name: each for name, each in value.items() if each is not LEFT_OUT}

    def _names_something_new(self, row: Field, members: Mapping[str, Any]) -> bool:
        if row.key in members:
            self.problems.append(Problem(row.path, "duplicate_key", "There is a member of this name already."))
        elif not row.key:
            self.problems.append(Problem(row.path, "required", "Give it a name, or remove it."))
        return bool(row.key) and row.key not in members

    def _union(self, field: Field) -> Any:
        return self.read(field.children[0]) if field.children else LEFT_OUT


def _choice(field: Field) -> Any:
    if field.fixed:
        return field.shape.options[0]
    chosen = (each for each in field.shape.options if field.text and option_text(each) == field.text)
    return next(chosen, LEFT_OUT)


def _text(field: Field) -> Any:
    return field.text if field.text or field.given or field.is_item else LEFT_OUT


def fields_of(schema: SchemaMapping, value: Mapping[str, Any]) -> FormFields:
    """Return the fields whose form spells this object."""
    writer = _Writer(schema)
    writer.put(shape_of(schema, schema), value, "")
    return writer.fields


class _Writer:
    def __init__(self, root: SchemaMapping) -> None:
        self.root, self.fields, self.left = root, FormFields(), MOST_FIELDS

    def put(self, shape: Shape, value: Any, name: str, depth: int = 0) -> None:
        """Write one place: as its fields where they can hold the value, else as JSON."""
        self.left -= 1
        if shape.nullable and value is None:
            self.fields.put("null", name, "1")
        elif not self._put_fitting(shape, value, name, depth):
            self.fields.put("json", name, json.dumps(value, indent=2, ensure_ascii=False))

    def _put_fitting(self, shape: Shape, value: Any, name: str, depth: int) -> bool:
        put = {"choice": self._choice, "text": self._text, "number": self._number}.get(shape.kind)
        if put is not None:
            return put(shape, value, name)
        inside = {"list": self._list, "group": self._group, "union": self._union}.get(shape.kind)
        if inside is None or depth > DEEPEST or self.left < 0:
            return False
        return inside(shape, value, name, depth)

    def _choice(self, shape: Shape, value: Any, name: str) -> bool:
        if not is_option(value, shape.options):
            return False
        self.fields.put("value", name, option_text(value))
        return True

    def _text(self, shape: Shape, value: Any, name: str) -> bool:
        if not isinstance(value, str) or UNWRITABLE.search(value):
            return False
        self.fields.put("value" if value else "given", name, value or "1")
        return True

    def _number(self, shape: Shape, value: Any, name: str) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        self.fields.put("value", name, json.dumps(value))
        return True

    def _list(self, shape: Shape, value: Any, name: str, depth: int) -> bool:
        if not isinstance(value, list) or len(value) > min(MOST_ROWS, self.left):
            return False
        self.fields.put("size", name, str(len(value)))
        if not value:
            self.fields.put("given", name, "1")
        prefix, rest = shape.schema.get("prefixItems") or [], shape.schema.get("items", {})
        for at, item in enumerate(value):
            part = prefix[at] if at < len(prefix) else rest
            self.put(shape_of(part, self.root), item, below(name, str(at)), depth + 1)
        return True

    def _group(self, shape: Shape, value: Any, name: str, depth: int) -> bool:
        if not isinstance(value, Mapping):
            return False
        properties = shape.schema.get("properties", {})
        others = [each for each in value if each not in properties]
        if len(others) > MOST_ROWS or "" in others or any(map(UNWRITABLE.search, others)):
            return False
        self.fields.put("given", name, "1")
        for member in properties:
            if member in value:
                inner = shape_of(properties[member], self.root)
                self.put(inner, value[member], below(name, step_name(member)), depth + 1)
        self._others(shape, value, name, others, depth)
        return True

    def _others(self, shape: Shape, value: Mapping[str, Any], name: str, others: Sequence[str], depth: int) -> None:
        if not others:
            return
        self.fields.put("size", name, str(len(others)))
        part = shape_of(shape.schema.get("additionalProperties", {}), self.root)
        for at, member in enumerate(others):
            self.fields.put("key", below(name, f"+{at}"), member)
            self.put(part, value[member], below(name, f"+{at}"), depth + 1)

    def _union(self, shape: Shape, value: Any, name: str, depth: int) -> bool:
        number = nearest_variant(shape.variants, value, self.root)
        if number is None:
            return False
        self.fields.put("pick", name, str(number))
        self.put(shape_of(shape.variants[number], self.root), value, name, depth + 1)
        return True


def show_problems(form: Field, problems: Iterable[Mapping[str, Any]]) -> list[str]:
    """Put each problem at the innermost field that its path leads to; return those that belong to no field."""
    places = {field.path: field for field in form.every() if field.path}
    loose: list[str] = []
    for problem in problems:
        path, message = str(problem.get("path", "")), str(problem.get("message", ""))
        found = next((places[each] for each in _ends_of(path) if each in places), None)
        if found is None:
            loose.append(f"{path}: {message}" if path else message)
        else:
            found.problems.append(
                message if found.path == path else f"{path.removeprefix(f'{found.path}.')}: {message}"
            )
    return loose


def _ends_of(path: str) -> list[str]:
    """Return a path and every path that it lies inside, the longest first."""
    steps = path.split(".")
    return [".".join(steps[:end]) for end in range(len(steps), 0, -1)]
