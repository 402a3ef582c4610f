"""Text templates filled from earlier results: plain replacement of named placeholders without expressions."""

import json
import re
from typing import Annotated, Any

from pydantic import Field

from catalog.errors import ParameterError, field_error
from catalog.tools import tool

MAX_TEXT = 256 * 1024

Template = Annotated[
    str,
    Field(
        description="Text with placeholders such as {name}, {amount:,} or {share:.1%}; {{ and }} are braces",
        max_length=64 * 1024,
    ),
]
Values = Annotated[dict[str, Any], Field(description="The value of each placeholder, by name")]

_PLACEHOLDER_PATTERN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]{0,63})(?::([^{}]{0,16}))?\}|[{}]")
_NUMBER_FORMAT = re.compile(r"\+?,?(\.[0-9]{1,2})?[f%d]?")


@tool(categories=["text"], retry_safe=True)
def render_text(template: Template, values: Values) -> str:
    """Fill the {name} placeholders of a template from values; numbers take formats such as {n:,.1f}."""
    pieces, size, end = [], 0, 0
    for token in _PLACEHOLDER_PATTERN.finditer(template):
        pieces += [template[end : token.start()], _fill_placeholder(token, values)]
        size, end = size + len(pieces[-1]), token.end()
        if size > MAX_TEXT:  # checked while it grows: a short template can produce gigabytes
            raise _value_error("values", f"The text would have more than {MAX_TEXT:,} characters.")
    return "".join([*pieces, template[end:]])


def _fill_placeholder(token: re.Match[str], values: dict[str, Any]) -> str:
    if token[0] in ("{{", "}}"):
        return token[0][0]
    if token[0] in ("{", "}"):
        place = f"character {token.start() + 1}"
        raise _value_error(
            "template", f"The brace at {place} does not belong to a {{name}}. Double it for a literal brace."
        )
    name, form = token[1], token[2]
    if name not in values:
        known = ", ".join(sorted(values)[:20]) or "none"
        raise _value_error(
            f"values.{name}", f"The template needs '{name}', which values does not have (it has: {known})."
        )
    value = values[name]
    if form is not None:
        return _format_value(name, value, form)
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _format_value(name: str, value: object, form: str) -> str:
    if not _NUMBER_FORMAT.fullmatch(form):
        raise _value_error("template", f"'{form}' is not a number format. Use one such as ',', '.2f', ',.1f' or '.1%'.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _value_error(f"values.{name}", f"The template formats '{name}' as a number, but it is not one.")
    if form.endswith("d") and not isinstance(value, int):
        raise _value_error(f"values.{name}", f"The template formats '{name}' as a whole number, but it is not one.")
    try:
        return format(value, form)
    except ValueError:
        raise _value_error("template", f"'{form}' does not fit the value of '{name}'.") from None


def _value_error(field: str, message: str) -> ParameterError:
    return field_error(field, "template", message)
