"""Tool specifications in gram: parsing, creation, and output as gram or JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from catalog.core.canonical_json import check_json, json_size
from catalog.definitions.rules import CATALOG_NAME
from catalog.errors import MalformedJSON, ToolDefinitionError, TypeSignatureError
from catalog.schemas.acceptance import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH
from catalog.styles.gram.analyzer import RecordProperties, analyze_signature
from catalog.styles.gram.parser import (
    NamedType,
    RecordSyntax,
    check_gram_size,
    parse_signature,
    parse_specification,
    quote_text,
    syntax_error,
)
from catalog.styles.gram.signature import Parameter, Type, TypeSignature, signature_text, specification_text

__all__ = [
    "Parameter",
    "ToolSpecification",
    "Type",
    "TypeSignature",
    "create_tool_specification",
    "parse_type_signature",
    "signature_text",
    "type_signature_to_json_schema",
]

SPECIFICATION_LABEL = "ToolSpecification"
_JSON_KEYS = ("name", "description", "typeSignature", "schema")


def parse_type_signature(text: str) -> TypeSignature:
    """Return the structured form of a type signature. Raises TypeSignatureError with location and expected tokens."""
    return analyze_signature(parse_signature(text))


def type_signature_to_json_schema(text: str) -> dict[str, Any]:
    """Return the JSON Schema of the arguments. Raises TypeSignatureError."""
    return _limited_schema(parse_type_signature(text))


@dataclass(frozen=True)
class ToolSpecification:
    """Name, description and signature of a tool, without code. Raises ToolDefinitionError and TypeSignatureError."""

    name: str
    description: str
    type_signature: str
    signature: TypeSignature = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name: object = self.name  # callers may pass anything
        description: object = self.description
        if not isinstance(name, str) or not name:
            raise ToolDefinitionError("Tool name cannot be empty")
        if not CATALOG_NAME.fullmatch(name):
            raise ToolDefinitionError(f"The tool name {quote_text(name)} must be 1 to 64 letters, digits, '_' or '-'.")
        if not isinstance(description, str) or not description.strip():
            raise ToolDefinitionError("Tool description cannot be empty")
        try:
            description.encode()
        except UnicodeEncodeError:
            raise ToolDefinitionError("The description contains a lone surrogate, which cannot be encoded.") from None
        written = parse_signature(self.type_signature)
        signature = analyze_signature(written)
        _limited_schema(signature)
        object.__setattr__(self, "type_signature", written.text)
        object.__setattr__(self, "signature", signature)
        check_gram_size(self.to_gram())

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, derived from the signature."""
        return self.signature.to_schema()

    def to_gram(self) -> str:
        """Return the specification as gram: the name is the pattern's identifier, the schema is left out."""
        return specification_text(self.name, self.description, self.type_signature)

    @classmethod
    def from_gram(cls, text: str) -> Self:
        """Parse a specification. Raises TypeSignatureError."""
        written = parse_specification(text)
        label = written.label
        if not isinstance(label, NamedType) or label.name != SPECIFICATION_LABEL:
            raise syntax_error(
                label.place, f"A specification needs the label {SPECIFICATION_LABEL}.", f":{SPECIFICATION_LABEL}"
            )
        record = written.record or RecordSyntax(label.place, ())
        description = RecordProperties(record, ("description",)).text("description")
        if not description:
            raise syntax_error(record.place, "The description is missing.", '{description: "…"}')
        analyze_signature(written.signature)  # analyzed here so that errors have locations in the entire text
        try:
            return cls(written.name.text, description, written.signature.text)
        except TypeSignatureError:
            raise
        except ToolDefinitionError as error:
            raise syntax_error(written.name.place, error.message) from None

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON, including the derived schema for readers."""
        return {
            "name": self.name,
            "description": self.description,
            "typeSignature": self.type_signature,
            "schema": self.schema,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a specification, deriving its schema and ignoring `schema`. Raises ToolDefinitionError."""
        if not isinstance(data, Mapping):
            raise ToolDefinitionError(f"A specification must be a JSON object, not {type(data).__name__}.")
        unknown = sorted(str(key) for key in data if key not in _JSON_KEYS)
        if unknown:
            raise ToolDefinitionError(
                f"Unknown key {quote_text(unknown[0])} in a specification. Its keys are {', '.join(_JSON_KEYS)}."
            )
        for key in _JSON_KEYS[:3]:
            if not isinstance(data.get(key), str):
                raise ToolDefinitionError(f"A specification needs the text {key}.")
        return cls(data["name"], data["description"], data["typeSignature"])


def create_tool_specification(name: str, description: str, type_signature: str) -> ToolSpecification:
    """Return a specification. Raises ToolDefinitionError, or TypeSignatureError for the signature."""
    return ToolSpecification(name, description, type_signature)


def _limited_schema(signature: TypeSignature) -> dict[str, Any]:
    """Return the schema if it is within the limits for all schemas. Raises TypeSignatureError."""
    schema = signature.to_schema()
    try:
        check_json(schema, max_depth=MAX_SCHEMA_DEPTH)
    except MalformedJSON:
        raise TypeSignatureError(
            f"The types are nested so deeply that their schema has over {MAX_SCHEMA_DEPTH} levels."
        ) from None
    size = json_size(schema)
    if size > MAX_SCHEMA_BYTES:
        raise TypeSignatureError(
            f"The schema of this signature has {size:,} bytes. At most {MAX_SCHEMA_BYTES:,} are accepted."
        )
    return schema
