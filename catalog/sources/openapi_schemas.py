"""Schemas of an OpenAPI document as JSON Schema 2020-12 for arguments, without properties that only the server sets."""

import copy
import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from catalog.core.canonical_json import json_size
from catalog.errors import SourceProblem
from catalog.schemas.acceptance import MAX_SCHEMA_BYTES
from catalog.schemas.resolver import schemas_in_place, single_type_of, subschemas
from catalog.sources.definitions import Schema, clean_schema, clean_text
from catalog.sources.openapi_document import LeftOut, target_of

MAX_REFERENCES = 500
"""Schemas that one operation refers to, directly and indirectly."""
MAX_COPIED = 16 * 1024 * 1024
"""Bytes of the schemas of all operations of a document together; each operation has its own copy."""
DROPPED = frozenset({"example", "discriminator", "xml", "externalDocs", "nullable", "readOnly", "writeOnly"})
COMBINING = frozenset({"$ref", "allOf", "oneOf", "anyOf", "not", "const"})
ANNOTATIONS = ("title", "description", "default", "deprecated", "examples")
READ_ONLY = "x-read-only"
"""Keyword that lists the read-only properties removed from a schema, until the tool's schema is complete."""


class DocumentSchemas:
    """The schemas of a document. Each is converted and measured once, however often it is used."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._converted: dict[int, tuple[Schema, Schema, int]] = {}
        self._texts: dict[str, str] = {}
        self._copied = 0

    def measure(self, schema: Schema) -> int:
        """Return the size in bytes of a schema's copy, counting each reference as short as it will be in a tool."""
        return self._convert(schema)[1]

    def copy(self, schema: Schema) -> Schema:
        """Return a copy with the document's references. Raises SourceProblem if all copies together are too large."""
        converted, size = self._convert(schema)
        self._copied += size
        if self._copied > MAX_COPIED:
            raise SourceProblem(
                f"The operations of the document have more than {MAX_COPIED // 1024**2} MiB of schemas. Choose the "
                "operations that you need by their tags, paths or names."
            )
        return copy.deepcopy(converted)

    def clean_text(self, text: str) -> str:
        """Return a cleaned description. A description that operations share is cleaned once."""
        if text not in self._texts:
            self._texts[text] = clean_text(text).rstrip()
        return self._texts[text]

    def is_read_only(self, schema: Any) -> bool:
        seen: set[int] = set()
        waiting = [schema]
        while waiting:
            part = waiting.pop()
            if not isinstance(part, dict) or id(part) in seen:
                continue
            if part.get("readOnly") is True:
                return True
            seen.add(id(part))
            waiting += part["allOf"] if isinstance(part.get("allOf"), list) else []
            if isinstance(part.get("$ref"), str):
                with suppress(LeftOut):  # said where the reference itself is followed
                    waiting.append(target_of(self.document, part["$ref"]))
        return False

    def _convert(self, schema: Schema) -> tuple[Schema, int]:
        if id(schema) not in self._converted:
            # Copied below a keyword, where identifiers are kept.
            converted: Schema = clean_schema({"not": schema})["not"]
            parts = [part for _, part in subschemas(converted)]
            removed = []
            for part in parts:
                properties = part.get("properties")
                if isinstance(properties, dict):
                    names = [name for name, each in properties.items() if self.is_read_only(each)]
                    for name in names:
                        del properties[name]
                    _drop_required(part, names)
                    removed += [(part, names)] if names else []
            for part in parts:
                _modernize(part)
            references = [each["$ref"] for _, each in subschemas(converted) if isinstance(each.get("$ref"), str)]
            shorter = sum(json_size(each) - json_size(local_reference(_definition_name(each))) for each in references)
            size = json_size(converted) - shorter
            for part, names in removed:
                part[READ_ONLY] = names
            # The schema of the document is kept too: its id() identifies it only while it exists.
            self._converted[id(schema)] = schema, converted, size
        return self._converted[id(schema)][1:]


@dataclass
class OperationSchemas:
    """The schemas of one operation: those of its arguments, and in `definitions` all that they refer to.

    `room` is how many bytes the operation's schemas may still take. The count is slightly too low, so that no
    acceptable operation is left out; the complete schema is checked again when the definition is judged.
    """

    schemas: DocumentSchemas
    room: int = MAX_SCHEMA_BYTES
    definitions: dict[str, Schema] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def schema(self, name: str, schema: Any) -> Schema:
        """Convert the schema `name`; those it refers to go into `definitions`. Raises LeftOut if room is too small."""
        self.take(len(name) + len('"":,'))
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, dict):
            raise LeftOut(f"the schema of {name[:80]!r} should be an object.")
        self.take(self.schemas.measure(schema))
        result = self.schemas.copy(schema)
        for _, part in list(subschemas(result)):
            if isinstance(part.get("$ref"), str):
                part["$ref"] = self._definition_reference(part["$ref"])
        return result

    def take(self, size: int) -> None:
        """Subtract `size` bytes from the room. Raises LeftOut if too little is left."""
        self.room -= size
        if self.room < 0:
            raise LeftOut(f"its schemas are too large: at most {MAX_SCHEMA_BYTES:,} bytes are accepted.")

    def kinds(self, schema: Schema) -> set[str]:
        """Return the types that a schema names or implies; "" is among them if a part of it allows any type."""
        kinds: set[str] = set()
        for part in self._in_place(schema):
            kind = part.get("type")
            kinds |= {str(each) for each in kind} if isinstance(kind, list) else {single_type_of(part)}
        return kinds

    def members(self, schema: Schema) -> list[Schema]:
        found: list[Any] = []
        for part in self._in_place(schema):
            properties = part.get("properties")
            found += properties.values() if isinstance(properties, dict) else ()
            found.append(part.get("additionalProperties"))
        return [each for each in found if isinstance(each, dict)]

    def _in_place(self, schema: Schema) -> list[Schema]:
        named: dict[str, object] = {local_reference(name): each for name, each in self.definitions.items()}
        return schemas_in_place([schema], named, ("allOf", "anyOf", "oneOf"))

    def _definition_reference(self, reference: str) -> str:
        if reference in self.names:
            return local_reference(self.names[reference])
        if len(self.names) >= MAX_REFERENCES:
            raise LeftOut(f"it refers to more than {MAX_REFERENCES} schemas.")
        name = _definition_name(reference)
        if name in self.names.values():
            name = f"{name}_{hashlib.sha256(reference.encode()).hexdigest()[:8]}"
        self.names[reference] = name
        self.definitions[name] = {}
        self.definitions[name] = self.schema(name, target_of(self.schemas.document, reference))
        return local_reference(name)


def require_no_read_only(schema: Schema) -> None:
    """Remove READ_ONLY properties from `required`, in place, also in other parts of their `allOf` or reference."""
    parts = [part for _, part in subschemas(schema)]
    if not any(READ_ONLY in part for part in parts):
        return
    named: dict[str, object] = {local_reference(name): each for name, each in schema.get("$defs", {}).items()}
    for part in parts:
        together = schemas_in_place([part], named, ("allOf",))
        names = [name for each in together for name in each.get(READ_ONLY, ())]
        for each in schemas_in_place([part], named, ("allOf", "anyOf", "oneOf")) if names else ():
            _drop_required(each, names)
    for part in parts:
        part.pop(READ_ONLY, None)


def _drop_required(part: Schema, names: list[str]) -> None:
    required = part.get("required")
    if not isinstance(required, list) or not names:
        return
    part["required"] = [name for name in required if name not in names]
    if not part["required"]:
        del part["required"]


def _definition_name(reference: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rpartition("/")[2])[:60] or "schema"


def local_reference(name: str) -> str:
    return f"#/$defs/{name}"


def _modernize(part: Schema) -> None:
    """Convert one schema object of OpenAPI 3.0 to JSON Schema 2020-12, in place."""
    is_nullable = part.get("nullable") is True
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(part.get(exclusive), bool) and part.pop(exclusive) and bound in part:
            part[exclusive] = part.pop(bound)
    for word in DROPPED:
        part.pop(word, None)
    for word in [each for each in part if each.startswith("x-") and each != "x-secret"]:
        del part[word]
    if is_nullable and COMBINING & part.keys():
        rest = {word: part.pop(word) for word in [*part] if word not in ANNOTATIONS}
        part["anyOf"] = [rest, {"type": "null"}]
    elif is_nullable:
        kinds = part.get("type")
        if isinstance(kinds, str | list):
            named = [kinds] if isinstance(kinds, str) else kinds
            part["type"] = [*named, *([] if "null" in named else ["null"])]
        if isinstance(part.get("enum"), list) and None not in part["enum"]:
            part["enum"] = [*part["enum"], None]
