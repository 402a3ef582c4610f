"""What can go wrong in the catalog, as one tree; texts are fit for a person and for a model.

Exception
└── ToolgateError                      .message
    ├── ToolError                      .details, .user_message(): what a tool says went wrong; never retried
    │   ├── ParameterError             arguments that do not fit                       → 422
    │   │   └── IdentifierRequired     the user must say first whom or what it is about → 422
    │   ├── QueryTypeUnsupported       a query type the tool does not have             → 422
    │   ├── ToolValidationError        a handler refuses what the schema let through
    │   ├── UnknownTool                no tool of that name                            → 422
    │   ├── PolicyRefusal              .policy, .rule: a policy refuses the call       → 403
    │   ├── ToolDisabled               switched off by an administrator                → 409
    │   ├── NoImplementation           nothing serves the tool                         → 409
    │   ├── RateLimited                .retry_after: used as often as one caller may       → 429
    │   ├── DataNotFound               nothing found: a warning with empty results
    │   ├── StorageUnavailable         what the tool stores its data in is away
    │   └── FilesystemError            a path or file the workspace refuses
    ├── DeadlineExceededError          the time of a call is over
    ├── PromptValidationError          .section_path: a prompt that cannot be rendered as it is written
    ├── PromptEvaluationError          ends a whole evaluation, not one call
    ├── VisibilityExpansionRequired    the caller must show the model more first
    ├── MalformedJSON                  .code, .path, .line, .column                    → 400
    ├── TooLarge                       .size, .limit (bytes)                           → 413
    ├── SignInThrottled                .retry_after: too many wrong passwords          → 429 on the page
    ├── Conflict                       a conditional UPDATE found no row to change     → 409
    │   └── RestoredDatabase           the database was set back: nothing starts on it → 503
    └── ToolDefinitionError            a tool that cannot be registered (a ValueError)
        ├── SchemaProblem              .path: a schema refused at registration
        └── TypeSignatureError         .line, .column, .expected: gram that says nothing we can use
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class ToolgateError(Exception):
    """Something the caller can be told in one sentence; `kind` is its class in one word, for programs."""

    kind = "unknown_error"

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class ToolError(ToolgateError):
    """What a tool says went wrong; raise it in a handler to fail the call with exactly this message."""

    kind = "tool_error"

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details: dict[str, Any] = dict(details or {})

    def user_message(self) -> str:
        """Return the text a person is shown."""
        return self.message


class ParameterError(ToolError):
    """Arguments do not fit; `details` has `field` (first path) and `errors` (path, code, message)."""

    kind = "parameter_error"

    def user_message(self) -> str:
        """Return the text a person is shown, naming the parameter when it is known."""
        field = self.details.get("field")
        if field:
            return f"The parameter '{field}' is invalid: {self.message}"
        return f"Invalid parameter: {self.message}"

    def __str__(self) -> str:
        field = self.details.get("field")
        return f"{self.message} (at {field})" if field else self.message


class IdentifierRequired(ParameterError):
    """The tool may only be called about somebody or something the user has named; its message asks for it."""

    def __init__(self, field: str, described: str = "") -> None:
        wanted = described.strip().rstrip(".") or f"the {field.rpartition('.')[2].replace('_', ' ')}"
        question = f"I'd be happy to help! Could you provide {wanted[:1].lower()}{wanted[1:]}?"
        problem = {"path": field, "code": "identifier_required", "message": question}
        super().__init__(question, {"field": field, "errors": [problem]})

    def user_message(self) -> str:
        """Return the question for the user."""
        return self.message


class QueryTypeUnsupported(ToolError):
    """The tool has no such query type."""

    kind = "query_type_error"

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

    kind = "validation_error"


class UnknownTool(ToolError):
    """No tool has this name."""

    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        message = f"Unknown tool: {name}"
        if nearest:
            message += f". Did you mean {' or '.join(nearest)}?"
        super().__init__(message, {"tool": name, "nearest": list(nearest)})


class PolicyRefusal(ToolError):
    """A policy refuses the call; `policy` is its name, `rule` says it in words; both are empty where none fits."""

    kind = "refused"

    def __init__(self, message: str, *, policy: str = "", rule: str = "") -> None:
        super().__init__(message, {"policy": policy, "rule": rule})
        self.policy = policy
        self.rule = rule

    def user_message(self) -> str:
        """Return the policy's message, with its name."""
        return self.message if self.policy in self.message else f"{self.message} (Policy: {self.policy})"


class ToolDisabled(ToolError):
    """An administrator has switched the tool off."""


class ToolDrifted(ToolError):
    """The code loaded here is not the version that the catalog has."""


class NoImplementation(ToolError):
    """Nothing serves the tool: its implementations have vanished, are switched off or have no weight."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"No implementation of {tool_name} is available: each is gone, switched off or has weight 0. "
            "An administrator can change that on the tool's page.",
            {"tool": tool_name},
        )


class RateLimited(ToolError):
    """One caller has used a group of tools as often as its limit allows; `retry_after` in seconds."""

    code = "rate_limited"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, {"retry_after": retry_after})
        self.retry_after = retry_after


class SignInThrottled(ToolgateError):
    """Too many wrong passwords for an account or from an address; `retry_after` in seconds."""

    def __init__(self, retry_after: int) -> None:
        minutes = -(-retry_after // 60)
        wait = (
            f"{retry_after} second{'s' * (retry_after != 1)}"
            if retry_after < 60
            else f"{minutes} minute{'s' * (minutes != 1)}"
        )
        super().__init__(f"Too many wrong passwords. Try again in {wait}.")
        self.retry_after = retry_after


class DataNotFound(ToolError):
    """The call was right and nothing was found: becomes a warning with empty results."""

    kind = "data_not_found"


class StorageUnavailable(ToolError):
    """What the tool reads from or writes to cannot be reached now."""

    kind = "storage_error"


class FilesystemError(ToolError):
    """A path or file that the workspace refuses."""


class DeadlineExceededError(ToolgateError):
    """The time of a call is over."""

    kind = "timeout"


class PromptValidationError(ToolgateError, ValueError):
    """A prompt that cannot be as it is written; `section_path` has the keys of the sections down to the wrong one."""

    kind = "prompt_invalid"

    def __init__(self, message: str, section_path: Sequence[str] = ()) -> None:
        super().__init__(f"{message} (section {'.'.join(section_path)})" if section_path else message)
        self.section_path = tuple(section_path)


class PromptEvaluationError(ToolgateError):
    """Ends a whole evaluation: raised again where a tool is invoked alone, a failed result inside a plan."""

    kind = "evaluation_ended"


class VisibilityExpansionRequired(ToolgateError):
    """The caller must show the model more before the call makes sense; passed on as the one above."""

    kind = "expansion_required"


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


class RestoredDatabase(Conflict):
    """The database is not the one that its checkpoints tell of: nothing starts on it before a new epoch."""


class ToolDefinitionError(ToolgateError, ValueError):
    """A tool that cannot be registered as it is written."""

    def name_tool(self, name: str) -> None:
        """Put the tool's name before a message that lacks it."""
        if not re.search(rf"(^|\b(of|Tool|that|what) ){re.escape(name)}\b", self.message):
            self.message = f"Tool {name}: {self.message}"
            self.args = (self.message,)


@contextmanager
def naming_tool(name: str) -> Iterator[None]:
    """Let every ToolDefinitionError that is raised inside name the tool."""
    try:
        yield
    except ToolDefinitionError as problem:
        problem.name_tool(name)
        raise


class SchemaProblem(ToolDefinitionError):
    """A JSON Schema refused at registration; `path` is the place inside the schema."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message} (schema at {path or 'its root'})")
        self.path = path


class TypeSignatureError(ToolDefinitionError):
    """gram that cannot be read or means nothing; `line` and `column` count from 1, `expected` could stand there."""

    def __init__(self, message: str, *, line: int = 1, column: int = 1, expected: Sequence[str] = ()) -> None:
        super().__init__(f"{message} (line {line}, column {column})")
        self.line = line
        self.column = column
        self.expected = list(expected)


def nested_errors(name: str, error: ParameterError) -> ParameterError:
    """Return an error about a value as one about the field of the body that holds the value."""
    problems = [
        {**each, "path": f"{name}.{each['path']}" if each["path"] else name}
        for each in (error.details or {}).get("errors", ())
    ]
    first = str(problems[0]["path"]) if problems else name
    return ParameterError(error.message, {"field": first, "errors": problems})


def field_error(field: str, code: str, message: str) -> ParameterError:
    """Return the error for one field of what was sent."""
    problem = {"path": field, "code": code, "message": message}
    return ParameterError(message, {"field": field or None, "errors": [problem]})
