"""Results of tools: ToolResult, Preview, and their texts and standard responses."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

ValueT = TypeVar("ValueT")

PreviewKind = Literal["diff", "rows", "text", "none"]
_PREVIEW_KINDS = get_args(PreviewKind)
MAX_STATE_TOKEN = 255
NO_MESSAGE = "OK"
"""The message of a successful result whose author gave none."""
TRUNCATION_MARK = "\n[... truncated ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class ToolResult(Generic[ValueT]):
    """A message for the model and a typed value; a failed result fails the call.

    `user_message`, if present, is the sentence an agent should pass on to its user. `content` holds MCP content blocks
    that accompany the value, such as `{"type": "image", "data": png, "mimeType": "image/png"}` with `data` as bytes.
    """

    message: str
    value: ValueT | None
    success: bool = True
    exclude_value_from_context: bool = False
    user_message: str | None = None
    content: Sequence[Mapping[str, Any]] | None = None

    @classmethod
    def ok(
        cls, value: ValueT, message: str = NO_MESSAGE, *, content: Sequence[Mapping[str, Any]] | None = None
    ) -> "ToolResult[ValueT]":
        return cls(message=message, value=value, content=content)

    @classmethod
    def error(cls, message: str) -> "ToolResult[ValueT]":
        return cls(message=message, value=None, success=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ResultWarning:
    """A defect of an answer that was kept anyway: its code (`output_schema`, `not_json` or `cut`) and a sentence."""

    code: Literal["output_schema", "not_json", "cut"]
    message: str

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message}


@dataclasses.dataclass(frozen=True, slots=True)
class UpstreamResult(ToolResult[ValueT]):
    """The answer of an upstream, kept despite its defects: the call has had its effect and must not look failed.

    The value is plain JSON of limited size already, and may hold integers of any size. `error_kind` is the kind of a
    failed result.
    """

    warnings: Sequence[ResultWarning] = ()
    error_kind: str = "tool_error"


@dataclasses.dataclass(frozen=True, slots=True)
class Preview:
    """Preview of a call, computed by its tool; `state_token` identifies the state of the target that it shows."""

    summary: str
    kind: PreviewKind
    before: str | None = None
    after: str | None = None
    rows: tuple[Mapping[str, Any], ...] = ()
    state_token: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in _PREVIEW_KINDS:
            raise ValueError(f"The kind of a preview must be one of {', '.join(_PREVIEW_KINDS)}, not {self.kind!r}.")
        token = self.state_token or ""
        if len(token) > MAX_STATE_TOKEN or "\x00" in token:
            raise ValueError(f"The state token of a preview may have at most {MAX_STATE_TOKEN} characters and no NUL.")
        object.__setattr__(self, "rows", tuple(self.rows))


def to_result(returned: object) -> ToolResult[Any]:
    """Return a handler's value as a result: unchanged if it is a ToolResult, else as a success with this value."""
    return returned if isinstance(returned, ToolResult) else ToolResult(message=NO_MESSAGE, value=returned)


def values_to_result(returned: object) -> ToolResult[Any]:
    """Return the result of a `define_tool` handler. For a tuple (result, error text), an error text is a failure."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], str | None):
        value, error = returned
        return to_result(value) if error is None else ToolResult(message=error, value=value, success=False)
    return to_result(returned)


def render(result: ToolResult[Any]) -> str:
    """Return the entire text for the model: message, blank line, value."""
    value = "" if result.exclude_value_from_context else render_value(result.value)
    return "\n\n".join(part for part in (result.message, value) if part)


def render_value(value: object) -> str:
    """Return the text of a value: its own `render()` if it has one, else JSON. The text of None is empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    rendered = custom_rendering(value)
    return _as_json(value) if rendered is None else rendered


def format_for_model(value: object, limit: int = 2000) -> str:
    """Return text of at most `limit` characters: strings unchanged, None as nil, everything else as indented JSON."""
    text = value if isinstance(value, str) else "nil" if value is None else _as_json(value, indent=2)
    return (
        text if len(text) <= limit else text[: max(0, limit - len(TRUNCATION_MARK))] + TRUNCATION_MARK[: max(0, limit)]
    )


def format_success_response(
    query_type: str | None, parameters: object, results: object, *, tool_name: str, **fields: object
) -> dict[str, Any]:
    """Return the standard response of a successful call; `fields` are the tool's own."""
    return _response(query_type, parameters, results, tool_name, success=True) | _extra_fields(fields)


def format_error_response(
    query_type: str | None,
    parameters: object,
    message: str,
    *,
    tool_name: str,
    error_type: str = "error",
    **fields: object,
) -> dict[str, Any]:
    """Return the standard response of a failed call; `error_type` is `warning` if nothing was found."""
    response = _response(query_type, parameters, [], tool_name, success=False)
    return response | _extra_fields(fields) | {error_type: message}


def _response(
    query_type: str | None, parameters: object, results: object, tool_name: str, *, success: bool
) -> dict[str, Any]:
    return {
        "query_type": query_type,
        "parameters": parameters,
        "results": results,
        "output_key": tool_name,
        "success": success,
    }


STANDARD_FIELDS = frozenset(_response("", {}, [], "", success=True))


def _extra_fields(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in STANDARD_FIELDS}


def custom_rendering(value: object) -> str | None:
    """Return the text of the value's own `render()`; None if there is no such method or it raises."""
    rendering = getattr(value, "render", None)
    if not callable(rendering):
        return None
    try:
        return str(rendering())
    except Exception:  # noqa: BLE001 - a tool author's render() may raise anything; JSON is the fallback
        return None


def _as_json(value: object, indent: int | None = None) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(
            value, dict_factory=lambda fields: {name: each for name, each in fields if each is not None}
        )
    without_none = isinstance(value, BaseModel)
    plain = to_jsonable_python(value, exclude_none=without_none, inf_nan_mode="strings", fallback=str)
    return json.dumps(plain, ensure_ascii=False, indent=indent)
