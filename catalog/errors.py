"""What can go wrong in the catalog, as one tree; texts are fit for a person and for a model.

Exception
└── ToolgateError                      .message
    ├── ToolError                      .details, .user_message(): what a tool says went wrong; never retried
    │   ├── ParameterError             arguments that do not fit                       → 422
    │   ├── QueryTypeUnsupported       a query type the tool does not have             → 422
    │   ├── ToolValidationError        a handler refuses what the schema let through
    │   ├── UnknownTool                no tool of that name                            → 422
    │   ├── ToolDisabled               switched off by an administrator                → 409
    │   ├── DataNotFound               nothing found: a warning with empty results
    │   └── FilesystemError            a path or file the workspace refuses
    ├── DeadlineExceededError          the time of a call is over
    ├── PromptEvaluationError          ends a whole evaluation, not one call
    ├── VisibilityExpansionRequired    the caller must show the model more first
    ├── MalformedJSON                  .code, .path, .line, .column                    → 400
    ├── TooLarge                       .size, .limit (bytes)                           → 413
    ├── Conflict                       a conditional UPDATE found no row to change     → 409
    └── ToolDefinitionError            a tool that cannot be registered (a ValueError)
        └── SchemaProblem              .path: a schema refused at registration
"""

from collections.abc import Mapping, Sequence
from typing import Any


class ToolgateError(Exception):
    """Something the caller can be told in one sentence."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class ToolError(ToolgateError):
    """What a tool says went wrong; raise it in a handler to fail the call with exactly this message."""

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details: dict[str, Any] = dict(details or {})

    def user_message(self) -> str:
        """Return the text a person is shown."""
        return self.message


class ParameterError(ToolError):
    """Arguments do not fit; `details` has `field` (first path) and `errors` (path, code, message)."""

    def user_message(self) -> str:
        """Return the text a person is shown, naming the parameter when it is known."""
        field = self.details.get("field")
        if field:
            return f"The parameter '{field}' is invalid: {self.message}"
        return f"Invalid parameter: {self.message}"


class QueryTypeUnsupported(ToolError):
    """The tool has no such query type."""

    def __init__(self, query_type: str, tool_name: str, supported_types: Sequence[str] | None = None) -> None:
        self.query_type = query_type
        self.tool_name = tool_name
        self.supported_types = list(supported_types or [])
        message = f"Query type '{query_type}' is not supported by the {tool_name} tool."
        if self.supported_types:
            message += f" Supported types are: {', '.join(self.supported_types)}"
        super().__init__(
            message,
            {"query_type": query_type, "tool_name": tool_name, "supported_types": self.supported_types},
        )


class ToolValidationError(ToolError):
    """A handler refuses what the schema let through."""


class UnknownTool(ToolError):
    """No tool has this name."""

    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        message = f"Unknown tool: {name}"
        if nearest:
            message += f". Did you mean {' or '.join(nearest)}?"
        super().__init__(message, {"tool": name, "nearest": list(nearest)})


class ToolDisabled(ToolError):
    """An administrator has switched the tool off."""


class ToolDrifted(ToolError):
    """The code loaded here is not the version that the catalog has."""


class DataNotFound(ToolError):
    """The call was right and nothing was found: becomes a warning with empty results."""


class FilesystemError(ToolError):
    """A path or file that the workspace refuses."""


class DeadlineExceededError(ToolgateError):
    """The time of a call is over."""


class PromptEvaluationError(ToolgateError):
    """Ends a whole evaluation; never wrapped into a tool's result."""


class VisibilityExpansionRequired(ToolgateError):
    """The caller must show the model more before the call makes sense; never wrapped."""


class MalformedJSON(ToolgateError):
    """Text or a value that is not the JSON we accept."""

    def __init__(self, message: str, *, code: str = "invalid_json", line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.line = line
        self.column = column
        self.steps: list[str] = []

    def inside(self, step: str | int) -> "MalformedJSON":
        """Note one more container around the bad value, from the inside out."""
        self.steps.insert(0, str(step))
        return self

    @property
    def path(self) -> str:
        """The dotted path of the bad value, empty for the whole document."""
        return ".".join(self.steps)

    def __str__(self) -> str:
        return f"{self.message} (at {self.path})" if self.steps else self.message


class TooLarge(ToolgateError):
    """More bytes than are accepted."""

    def __init__(self, what: str, *, size: int, limit: int) -> None:
        super().__init__(f"{what} has {size:,} bytes; at most {limit:,} are accepted.")
        self.size = size
        self.limit = limit


class Conflict(ToolgateError):
    """A conditional UPDATE found nothing to change: someone else got there first."""


class ToolDefinitionError(ToolgateError, ValueError):
    """A tool that cannot be registered as it is written."""


class SchemaProblem(ToolDefinitionError):
    """A JSON Schema refused at registration; `path` is the place inside the schema."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message} (schema at {path or 'its root'})")
        self.path = path
