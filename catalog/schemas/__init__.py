"""JSON Schema: acceptance, validation, resolution and description. Knows no tool, call or row."""

from catalog.schemas.acceptance import check_schema
from catalog.schemas.validation import (
    ArgumentProblem,
    Validator,
    check_json_arguments,
    compile_schema,
    raise_for_problems,
    validate_tool_args,
)

__all__ = [
    "ArgumentProblem",
    "Validator",
    "check_json_arguments",
    "check_schema",
    "compile_schema",
    "raise_for_problems",
    "validate_tool_args",
]
