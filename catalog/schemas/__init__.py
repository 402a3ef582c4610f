"""JSON Schema: which schemas are taken, what fits one, and how one is read. Knows no tool, call or row."""

from catalog.schemas.acceptance import check_schema
from catalog.schemas.validation import (
    Problem,
    Validator,
    compile_schema,
    plain_json,
    refuse,
    validate_tool_args,
)

__all__ = ["Problem", "Validator", "check_schema", "compile_schema", "plain_json", "refuse", "validate_tool_args"]
