"""Forms made from JSON Schema: fields, the JSON value they represent, and the reverse conversion. Both are lossless."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from catalog.core.canonical_json import parse_json
from catalog.core.json_paths import member_path
from catalog.errors import MalformedJSON, ParameterError, TooLarge
from catalog.schemas import ArgumentProblem
from catalog.schemas.description import limit_labels, type_label, variant_labels
from catalog.schemas.normalization import is_large_integer
from catalog.schemas.resolver import FieldType, SchemaMapping, choice_text, field_type_of, is_choice, nearest_variant
from catalog.ui.forms.submission import MAX_LIST_ROWS, FormFields, member_step

MAX_FORM_DEPTH = 8
MAX_FORM_FIELDS = 500
"""Number of fields after which nested parts stay closed."""
MAX_RENDERED_FIELDS = 800
"""Maximum fields in a form: with the page's other fields below Django's limit of a thousand."""
MAX_INITIAL_ROWS = 20
LONG_TEXT_LENGTH = 1024
INPUT_MODES = {"email": "email", "uri": "url", "number": "decimal", "integer": "numeric"}


@dataclass(frozen=True, slots=True)
class FormChoice:
    value: str
    label: str
    chosen: bool = False


@dataclass(slots=True, kw_only=True)
class FormNode:
    """One node of the form.

    `name` is its path in the form, `path` its path in errors. `key` is the name that the user entered for a member that
    is not in the schema. `open` is true if its content is rendered, `fixed` if there is nothing to choose. The kind
    `reference` stands for a value that the page looks up. `extra` is what the page adds to the field.
    """

    name: str
    path: str
    label: str
    shape: FieldType
    required: bool
    is_item: bool = False
    kind: str = ""
    text: str = ""
    given: bool = False
    is_null: bool = False
    key: str | None = None
    open: bool = True
    removable: bool = False
    focused: bool = False
    is_default: bool = False
    type_label_text: str = ""
    limits: tuple[str, ...] = ()
    options: tuple[FormChoice, ...] = ()
    children: list["FormNode"] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    extra: Any = None

    @property
    def id(self) -> str:
        return f"f-{self.name or 'all'}"

    @property
    def description(self) -> str:
        return str(self.shape.schema.get("description", ""))

    @property
    def fixed(self) -> bool:
        """True if the schema allows only one value, so that it is always sent."""
        schema = self.shape.schema
        stated = self.required or ("const" in schema and schema.get("default", ...) == schema["const"])
        return self.kind == "choice" and len(self.shape.options) == 1 and stated

    @property
    def input_mode(self) -> str:
        kind = self.shape.schema.get("format") or self.shape.schema.get("type")
        return INPUT_MODES.get(kind, "text") if isinstance(kind, str) else "text"

    @property
    def is_secret(self) -> bool:
        schema = self.shape.schema
        return bool(schema.get("writeOnly") or schema.get("x-secret") or schema.get("format") == "password")

    @property
    def may_be_empty(self) -> bool:
        """True if the user can choose explicitly between leaving a text out and sending an empty text."""
        is_offered = self.given or not self.shape.schema.get("minLength")
        return self.kind in ("text", "area") and not self.is_item and is_offered

    @property
    def takes_more(self) -> bool:
        schema = self.shape.schema
        if self.kind == "list":
            opens = self.open or not schema.get("prefixItems")
            return opens and schema.get("items") is not False and self.row_count < schema.get("maxItems", MAX_LIST_ROWS)
        # Unlike JSON Schema, a call refuses undeclared members of an object that declares members.
        others = schema.get("additionalProperties", "properties" not in schema) is not False
        return self.kind == "group" and (others or "patternProperties" in schema)

    @property
    def described_by(self) -> str:
        return f"{self.id}-d" if self.problems or self.description or self.limits else ""

    @property
    def row_count(self) -> int:
        rows = self.children if self.kind == "list" else [each for each in self.children if each.key is not None]
        return len(rows)

    def focus(self, name: str) -> None:
        """Focus the first control at or inside the path `name`. A row's number also finds a row with a key."""
        parent, _, row = name.rpartition(".")
        named = member_path(parent, f"+{row}")
        for each in self.every():
            if not name or not any(f"{each.name}.".startswith(f"{path}.") for path in (name, named)):
                continue
            if each.has_control:
                each.focused = True
                return

    @property
    def has_control(self) -> bool:
        """True if the node itself has a control: a field, the name of a row, or the choice of a variant."""
        return self.key is not None or self.kind == "union" or (self.kind not in ("group", "list") and not self.fixed)

    def every(self) -> Iterator["FormNode"]:
        yield self
        for child in self.children:
            yield from child.every()


def build_form(schema: SchemaMapping, fields: FormFields) -> FormNode:
    """Return the form filled with submitted fields. Raises ParameterError for invalid numbers or too many fields."""
    return _FormBuilder(schema, fields).build(
        FormNode(name="", path="", label=_("Arguments"), shape=field_type_of(schema, schema), required=True)
    )


class _FormBuilder:
    """Builds one form. Nested parts stay closed when the form already has more fields than people can use."""

    def __init__(self, root: SchemaMapping, fields: FormFields) -> None:
        self.root, self.fields, self.count = root, fields, 0
        self.known = fields.places()

    def build(self, node: FormNode, depth: int = 0) -> FormNode:
        self.count += 1
        if self.count > MAX_RENDERED_FIELDS:
            raise ParameterError(_("There are too many parameters for a form. Use JSON."))
        node.kind = self._kind(node, depth)
        node.type_label_text = type_label(node.shape.schema, self.root)
        described = node.shape.schema
        if node.kind == "choice":  # its options are already displayed
            described = {name: each for name, each in described.items() if name == "default"}
        node.limits = tuple(limit_labels(described, self.root))
        node.given = self.fields.text("given", node.name) is not None
        node.is_null = self.fields.text("null", node.name) is not None
        fill = {"list": self._list, "group": self._group, "union": self._union, "choice": self._choice}
        if node.kind in fill:
            fill[node.kind](node, depth)
        else:
            word = node.kind if node.kind in ("json", "reference") else "value"
            node.text = self.fields.text(word, node.name) or ""
        return node

    def _kind(self, node: FormNode, depth: int) -> str:
        kind, name = node.shape.kind, node.name
        if self.fields.text("reference", name) is not None:
            return "reference"
        if self.fields.text("json", name) is not None:
            return "json"
        opens = kind in ("list", "group", "union")
        if opens and (depth > MAX_FORM_DEPTH or (self.count > MAX_FORM_FIELDS and name not in self.known)):
            return "json"
        if kind != "text":
            return kind
        if "\n" in (self.fields.text("value", name) or ""):
            return "area"
        schema = node.shape.schema
        is_long = schema.get("maxLength", LONG_TEXT_LENGTH + 1) > LONG_TEXT_LENGTH
        return "area" if is_long and not schema.get("format") and not schema.get("pattern") else "text"

    def _choice(self, node: FormNode, _: int) -> None:
        sent = self.fields.text("value", node.name) or ""
        texts = [choice_text(each) for each in node.shape.options]
        node.text = sent if sent in texts else ""
        labels = [each if isinstance(each, str) else text for each, text in zip(node.shape.options, texts, strict=True)]
        node.options = tuple(
            FormChoice(text, label, text == node.text) for text, label in zip(texts, labels, strict=True)
        )

    def _union(self, node: FormNode, depth: int) -> None:
        variants = node.shape.variants
        picked = self.fields.text("pick", node.name)
        if picked is None and node.required:
            picked = "0"
        number = int(picked) if picked and picked.isascii() and picked.isdecimal() and len(picked) < 4 else -1
        node.text = str(number) if 0 <= number < len(variants) else ""
        labels = variant_labels(variants, self.root)
        node.options = tuple(FormChoice(str(at), label, at == number) for at, label in enumerate(labels))
        if node.text:
            chosen = field_type_of(variants[number], self.root)
            inner = FormNode(name=node.name, path=node.path, label=labels[number], shape=chosen, required=True)
            inner.is_item = True
            node.children = [self.build(inner, depth + 1)]

    def _list(self, node: FormNode, depth: int) -> None:
        schema, size = node.shape.schema, self.fields.size(node.name)
        prefix = schema.get("prefixItems") or []
        is_known = node.name in self.known
        node.open = node.required or is_known
        if node.open and prefix:
            size = max(size, len(prefix))
        elif node.open and not is_known:
            size = min(int(schema.get("minItems", 0)), MAX_INITIAL_ROWS)
        for at in range(size):
            part = prefix[at] if at < len(prefix) else schema.get("items", {})
            shape = field_type_of(part, self.root)
            label, name, path = f"{at + 1}", member_path(node.name, str(at)), member_path(node.path, str(at))
            if at < len(prefix):
                label = str(shape.schema.get("title") or label)
            row = FormNode(name=name, path=path, label=label, shape=shape, required=True)
            row.is_item = row.removable = at >= len(prefix)
            node.children.append(self.build(row, depth + 1))

    def _group(self, node: FormNode, depth: int) -> None:
        is_closed = not node.required and node.name not in self.known
        if is_closed or node.is_null:
            node.open = False
            return
        node.given = True
        schema = node.shape.schema
        properties, required = schema.get("properties", {}), schema.get("required", ())
        for name, part in properties.items():
            inner = FormNode(
                name=member_path(node.name, member_step(name)),
                path=member_path(node.path, name),
                label=name,
                shape=field_type_of(part, self.root),
                required=name in required,
            )
            node.children.append(self.build(inner, depth + 1))
        for at in range(self.fields.size(node.name)):
            row_name = member_path(node.name, f"+{at}")
            key = self.fields.text("key", row_name) or ""
            shape = field_type_of(schema.get("additionalProperties", {}), self.root)
            row = FormNode(name=row_name, path=member_path(node.path, key), label=key, shape=shape, required=True)
            row.key, row.is_item, row.removable = key, True, True
            node.children.append(self.build(row, depth + 1))


NUMBER_PATTERN = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,4})?", re.ASCII)
# A browser would change these characters in a form field.
UNWRITABLE_PATTERN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|[\ud800-\udfff]")
OMITTED: Any = object()


def form_to_value(form: FormNode) -> tuple[dict[str, Any], list[ArgumentProblem]]:
    """Return the object that a form represents, and the problems of its invalid fields."""
    reader = _FormReader()
    value = reader.read(form)
    return (value if isinstance(value, dict) else {}), reader.problems


class _FormReader:
    def __init__(self) -> None:
        self.problems: list[ArgumentProblem] = []

    def read(self, node: FormNode) -> Any:
        if node.is_null:
            return None
        if node.kind == "json":
            return self._parsed(node, node.text) if node.text.strip() else self._blank(node)
        if node.kind == "union":
            return self.read(node.children[0]) if node.children else OMITTED
        if node.kind == "reference":
            return node.text if node.text.strip() else self._blank(node)
        read = {"choice": _choice, "number": self._number, "list": self._list, "group": self._group}
        return read.get(node.kind, _text)(node)

    def _number(self, node: FormNode) -> Any:
        text = node.text.strip()
        if not text:
            return self._blank(node)
        if is_large_integer(text):  # sent as its digits
            return text
        return self._parsed(node, text) if NUMBER_PATTERN.fullmatch(text) else node.text

    def _parsed(self, node: FormNode, text: str) -> Any:
        try:
            return parse_json(text)
        except (MalformedJSON, TooLarge) as error:
            self.problems.append(ArgumentProblem(node.path, "json", error.message))
            return OMITTED

    def _blank(self, node: FormNode) -> Any:
        if node.removable:
            self.problems.append(ArgumentProblem(node.path, "required", _("Fill this in or remove it.")))
        return OMITTED

    def _list(self, node: FormNode) -> Any:
        items = [self.read(child) for child in node.children]
        while items and items[-1] is OMITTED:
            items.pop()
        for child, item in zip(node.children, items, strict=False):
            if item is OMITTED and not child.removable:
                self.problems.append(ArgumentProblem(child.path, "required", _("This is required.")))
        if not items and not node.given:
            return OMITTED
        return [item for item in items if item is not OMITTED]

    def _group(self, node: FormNode) -> Any:
        if not node.open:
            return OMITTED
        value: dict[str, Any] = {}
        for child in node.children:
            read = self.read(child)
            if child.key is None or (child.key and child.key not in value):
                value[child.label] = read
            elif child.key:
                message = _("There is already a field with this name.")
                self.problems.append(ArgumentProblem(child.path, "duplicate_key", message))
            else:
                self.problems.append(ArgumentProblem(child.path, "required", _("Enter a name or remove it.")))
        return {name: each for name, each in value.items() if each is not OMITTED}


def _choice(node: FormNode) -> Any:
    if node.fixed:
        return node.shape.options[0]
    chosen = (each for each in node.shape.options if node.text and choice_text(each) == node.text)
    return next(chosen, OMITTED)


def _text(node: FormNode) -> Any:
    return node.text if node.text or node.given or node.is_item else OMITTED


def value_to_form(
    schema: SchemaMapping, value: Mapping[str, Any], is_reference: Callable[[str], bool] | None = None
) -> FormFields:
    """Return the fields that represent a value. A text that `is_reference` may stand for a value of any type."""
    writer = _FormWriter(schema, is_reference)
    writer.put(field_type_of(schema, schema), value, "")
    return writer.fields


class _FormWriter:
    def __init__(self, root: SchemaMapping, is_reference: Callable[[str], bool] | None) -> None:
        self.root, self.fields, self.left = root, FormFields(), MAX_FORM_FIELDS
        self.is_reference = is_reference

    def put(self, field_type: FieldType, value: Any, name: str, depth: int = 0) -> None:
        """Write the value of one node: in form fields if they can represent it, otherwise as JSON."""
        self.left -= 1
        if field_type.nullable and value is None:
            self.fields.put("null", name, "1")
            return
        is_text = isinstance(value, str) and not UNWRITABLE_PATTERN.search(value)
        if is_text and field_type.kind != "text" and self.is_reference and self.is_reference(value):
            self.fields.put("reference", name, value)
            return
        put_leaf = {"choice": self._choice, "text": self._text, "number": self._number}.get(field_type.kind)
        put_parts = {"list": self._list, "group": self._group, "union": self._union}.get(field_type.kind)
        fits = False
        if put_leaf is not None:
            fits = put_leaf(field_type, value, name)
        elif put_parts is not None and depth <= MAX_FORM_DEPTH and self.left >= 0:
            fits = put_parts(field_type, value, name, depth)
        if not fits:
            self.fields.put("json", name, json.dumps(value, indent=2, ensure_ascii=False))

    def _choice(self, field_type: FieldType, value: Any, name: str) -> bool:
        if not is_choice(value, field_type.options):
            return False
        self.fields.put("value", name, choice_text(value))
        return True

    def _text(self, field_type: FieldType, value: Any, name: str) -> bool:
        if not isinstance(value, str) or UNWRITABLE_PATTERN.search(value):
            return False
        self.fields.put("value" if value else "given", name, value or "1")
        return True

    def _number(self, field_type: FieldType, value: Any, name: str) -> bool:
        if is_large_integer(value):
            self.fields.put("value", name, value)
            return True
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        self.fields.put("value", name, json.dumps(value))
        return True

    def _list(self, field_type: FieldType, value: Any, name: str, depth: int) -> bool:
        if not isinstance(value, list) or len(value) > min(MAX_LIST_ROWS, self.left):
            return False
        self.fields.put("size", name, str(len(value)))
        if not value:
            self.fields.put("given", name, "1")
        prefix, rest = field_type.schema.get("prefixItems") or [], field_type.schema.get("items", {})
        for at, item in enumerate(value):
            part = prefix[at] if at < len(prefix) else rest
            self.put(field_type_of(part, self.root), item, member_path(name, str(at)), depth + 1)
        return True

    def _group(self, field_type: FieldType, value: Any, name: str, depth: int) -> bool:
        if not isinstance(value, Mapping):
            return False
        properties = field_type.schema.get("properties", {})
        others = [each for each in value if each not in properties]
        if len(others) > MAX_LIST_ROWS or "" in others or any(map(UNWRITABLE_PATTERN.search, others)):
            return False
        self.fields.put("given", name, "1")
        for member in properties:
            if member in value:
                inner = field_type_of(properties[member], self.root)
                self.put(inner, value[member], member_path(name, member_step(member)), depth + 1)
        if others:
            self.fields.put("size", name, str(len(others)))
            part = field_type_of(field_type.schema.get("additionalProperties", {}), self.root)
            for at, member in enumerate(others):
                self.fields.put("key", member_path(name, f"+{at}"), member)
                self.put(part, value[member], member_path(name, f"+{at}"), depth + 1)
        return True

    def _union(self, field_type: FieldType, value: Any, name: str, depth: int) -> bool:
        number = nearest_variant(field_type.variants, value, self.root)
        if number is None:
            return False
        self.fields.put("pick", name, str(number))
        self.put(field_type_of(field_type.variants[number], self.root), value, name, depth + 1)
        return True


def show_problems(form: FormNode, problems: Iterable[Mapping[str, Any]]) -> list[str]:
    """Add each problem to the innermost field on its path; return the messages of problems that belong to no field."""
    places = {field.path: field for field in form.every() if field.path}
    loose: list[str] = []
    for problem in problems:
        path, message = str(problem.get("path", "")), str(problem.get("message", ""))
        steps = path.split(".")
        enclosing = (".".join(steps[:end]) for end in range(len(steps), 0, -1))  # the path itself, then wider ones
        found = next((places[each] for each in enclosing if each in places), None)
        if found is None:
            loose.append(f"{path}: {message}" if path else message)
        else:
            found.problems.append(
                message if found.path == path else f"{path.removeprefix(f'{found.path}.')}: {message}"
            )
    return loose
