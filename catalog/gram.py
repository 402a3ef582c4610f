"""gram for tool authors: the names that parse, write and convert tool signatures and specifications."""

from catalog.styles.gram.signature import Parameter, Type, TypeSignature, signature_text
from catalog.styles.gram.specification import (
    ToolSpecification,
    create_tool_specification,
    parse_type_signature,
    type_signature_to_json_schema,
)

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
