"""Exceptions of the catalog. Their messages are written for people and for models.

Exception
└── ToolgateError                      .message
    ├── ToolError                      .details, .user_message(): an error reported by a tool; never retried
    │   ├── ParameterError             invalid arguments                              → 422
    │   │   └── IdentifierRequired     the user must name the subject first           → 422
    │   ├── QueryTypeUnsupported       a query type the tool does not have             → 422
    │   ├── ToolValidationError        a handler refuses arguments that fit the schema
    │   ├── UnknownTool                no tool of that name                            → 422
    │   ├── PolicyRefusal              .policy, .rule: a policy refuses the call       → 403
    │   │   └── OutsideLimits          the limits of the token leave out the tool      → 403
    │   ├── ToolDisabled               disabled by an administrator                   → 409
    │   │   └── ToolRemoved            no longer offered by its source                → 409
    │   ├── NoImplementation           no implementation is available                 → 409
    │   ├── RateLimited                .retry_after: the caller's limit is reached    → 429
    │   ├── Stopped                    .stop, .reason: a stop covers the call         → 503
    │   ├── DataNotFound               nothing found: a warning with empty results
    │   ├── StorageUnavailable         the tool's storage is unavailable
    │   ├── FilesystemError            a path or file that the workspace refuses
    │   └── UpstreamError              an error of an imported tool's upstream
    ├── UpstreamUnavailable            an imported tool's upstream cannot be reached        → 502
    ├── SourceProblem                  an upstream's offer cannot be read              → 502
    ├── EffectUnknown                  a request was sent and its answer was lost
    ├── DeadlineExceededError          the deadline of a call has passed
    ├── PromptValidationError          .section_path: a prompt that cannot be rendered
    ├── PromptEvaluationError          ends an entire evaluation, not one call
    ├── VisibilityExpansionRequired    the model must see more sections first
    ├── MalformedJSON                  .code, .path, .line, .column                    → 400
    ├── TooLarge                       .size, .limit (bytes)                           → 413
    ├── SignInThrottled                .retry_after: too many wrong attempts           → 429 on the page
    ├── Conflict                       a conditional UPDATE found no row to change     → 409
    │   └── RestoredDatabase           an older copy of the database: nothing starts  → 503
    └── ToolDefinitionError            a tool that cannot be registered (a ValueError)
        ├── SchemaProblem              .path: a schema that is refused at registration
        └── TypeSignatureError         .line, .column, .expected: invalid gram
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class ToolgateError(Exception):
    """Base of errors with a one-sentence message; `kind` is the class as one word, for programs."""

    kind = "unknown_error"

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class ToolError(ToolgateError):
    """An error reported by a tool; raise it in a handler to fail the call with exactly this message."""

    kind = "tool_error"

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details: dict[str, Any] = dict(details or {})

    def user_message(self) -> str:
        """Return the text displayed to a person."""
        return self.message


class ParameterError(ToolError):
    """Invalid arguments; `details` has `field` (first path) and `errors` (path, code, message)."""

    kind = "parameter_error"

    def user_message(self) -> str:
        field = self.details.get("field")
        if field:
            return f"The parameter '{field}' is invalid: {self.message}"
        return f"Invalid parameter: {self.message}"

    def __str__(self) -> str:
        field = self.details.get("field")
        return f"{self.message} (at {field})" if field else self.message


class IdentifierRequired(ParameterError):
    """The call needs a subject named by the user; the message asks for it."""

    def __init__(self, field: str, described: str = "") -> None:
        described_field = described.strip().rstrip(".") or f"the {field.rpartition('.')[2].replace('_', ' ')}"
        question = f"I'd be happy to help! Could you provide {described_field[:1].lower()}{described_field[1:]}?"
        problem = {"path": field, "code": "identifier_required", "message": question}
        super().__init__(question, {"field": field, "errors": [problem]})

    def user_message(self) -> str:
        return self.message


class QueryTypeUnsupported(ToolError):
    """The tool does not have this query type."""

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
    """A handler refuses arguments that fit the schema."""

    kind = "validation_error"


class UnknownTool(ToolError):
    """No tool has this name."""

    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        message = f"Unknown tool: {name}"
        if nearest:
            message += f". Did you mean {' or '.join(nearest)}?"
        super().__init__(message, {"tool": name, "nearest": list(nearest)})


class PolicyRefusal(ToolError):
    """A policy refuses the call; `policy` is its name, `rule` describes it. Both are empty if no policy matches."""

    kind = "refused"

    def __init__(self, message: str, *, policy: str = "", rule: str = "") -> None:
        super().__init__(message, {"policy": policy, "rule": rule})
        self.policy = policy
        self.rule = rule

    def user_message(self) -> str:
        return self.message if self.policy in self.message else f"{self.message} (Policy: {self.policy})"


class OutsideLimits(PolicyRefusal):
    """The limits of the token through which the call is made leave out its tool."""

    kind = "outside_limits"


class ToolDisabled(ToolError):
    """The tool is disabled by an administrator."""


class ToolRemoved(ToolDisabled):
    """The source of the tool no longer offers it."""

    def __init__(self, tool_name: str, source: str) -> None:
        super().__init__(
            f"The tool {tool_name} was removed by its source {source}, which offers it no longer.", {"tool": tool_name}
        )


class ToolDrifted(ToolError):
    """The code of the tool in this process differs from the version in the catalog.

    `may_run_elsewhere`: another process may have the right code.
    """

    may_run_elsewhere = True


class ToolHeld(ToolDrifted):
    """The upstream has changed the tool's definition, and no administrator has accepted the change."""

    may_run_elsewhere = False

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"The definition of {tool_name} changed at its source and waits for an administrator to accept it. "
            "Until then it cannot be called.",
            {"tool": tool_name},
        )


class NoImplementation(ToolError):
    """No implementation serves the tool: each is missing, disabled or has weight 0."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"No implementation of {tool_name} is available: each is missing, disabled or has weight 0. "
            "An administrator can change that on the tool's page.",
            {"tool": tool_name},
        )


class RateLimited(ToolError):
    """A caller has reached the rate limit of a group of tools; `retry_after` in seconds."""

    code = "rate_limited"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, {"retry_after": retry_after})
        self.retry_after = retry_after


class Stopped(ToolError):
    """A stop covers the call, so nothing of it starts; `stop` is its id, `reason` its reason."""

    kind = "stopped"

    def __init__(self, stop: str, reason: str) -> None:
        super().__init__(f"Stopped: {reason.rstrip('.')}. Do not retry.", {"stop": stop, "reason": reason})
        self.stop = stop
        self.reason = reason


class SignInThrottled(ToolgateError):
    """Too many wrong passwords or codes for an account or from an address; `retry_after` in seconds."""

    def __init__(self, retry_after: int) -> None:
        minutes = -(-retry_after // 60)
        wait = (
            f"{retry_after} second{'s' * (retry_after != 1)}"
            if retry_after < 60
            else f"{minutes} minute{'s' * (minutes != 1)}"
        )
        super().__init__(f"Too many wrong attempts. Try again in {wait}.")
        self.retry_after = retry_after


class DataNotFound(ToolError):
    """A valid call found nothing: becomes a warning with empty results."""

    kind = "data_not_found"


class StorageUnavailable(ToolError):
    """The tool's storage is currently unavailable."""

    kind = "storage_error"


class FilesystemError(ToolError):
    """A path or file that the workspace refuses."""


class DeadlineExceededError(ToolgateError):
    """The deadline of a call has passed."""

    kind = "timeout"


class UpstreamError(ToolError):
    """The upstream of an imported tool answered with an error, or with something that is no valid result.

    `kind` names the class of the failure, such as `upstream_denied`. `http_status` is the status of an HTTP response,
    and `retry_after` the number of seconds that its Retry-After asks to wait; both are in `details`.
    """

    kind = "upstream_error"

    def __init__(
        self,
        message: str,
        kind: str = "upstream_error",
        *,
        http_status: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        known = {"http_status": http_status, "retry_after": retry_after}
        super().__init__(message, {name: value for name, value in known.items() if value is not None})
        self.kind = kind


class UpstreamUnavailable(ToolgateError):
    """The upstream of an imported tool cannot be reached; nothing was sent. A retry-safe call is tried again."""

    kind = "upstream_unavailable"


class SourceProblem(ToolgateError):
    """An upstream's offer cannot be read. The message is for administrators and contains no secret."""

    kind = "source_problem"


class EffectUnknown(ToolgateError):
    """A request was sent and its answer was lost. The outcome of a call that must not run twice becomes unknown."""

    kind = "effect_unknown"


class PromptValidationError(ToolgateError, ValueError):
    """An invalid prompt; `section_path` has the keys of the sections down to the faulty one."""

    kind = "prompt_invalid"

    def __init__(self, message: str, section_path: Sequence[str] = ()) -> None:
        super().__init__(f"{message} (section {'.'.join(section_path)})" if section_path else message)
        self.section_path = tuple(section_path)


class PromptEvaluationError(ToolgateError):
    """Ends an entire evaluation: raised again if a tool is invoked alone; in a plan it only fails the call."""

    kind = "evaluation_ended"


class VisibilityExpansionRequired(ToolgateError):
    """The model must see more sections before the call makes sense; raised again like PromptEvaluationError."""

    kind = "expansion_required"


class MalformedJSON(ToolgateError):
    """Text or a value that is not JSON within Toolgate's limits."""

    def __init__(self, message: str, *, code: str = "invalid_json", line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.line = line
        self.column = column
        self.steps: list[str] = []

    def inside(self, step: str | int) -> "MalformedJSON":
        """Prepend a step to the path of the invalid value: the key or index in the container around it."""
        self.steps.insert(0, str(step))
        return self

    @property
    def path(self) -> str:
        """The dotted path of the invalid value, empty for the document itself."""
        return ".".join(self.steps)

    def user_message(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{self.message} (at {self.path})" if self.steps else self.message


class TooLarge(ToolgateError):
    """More bytes than are accepted."""

    def __init__(self, what: str, *, size: int, limit: int) -> None:
        super().__init__(f"{what} has {size:,} bytes. At most {limit:,} are accepted.")
        self.size = size
        self.limit = limit


class Conflict(ToolgateError):
    """A conditional UPDATE matched no row: another process or person was first."""


class RestoredDatabase(Conflict):
    """The database is older than its checkpoints: nothing starts before an administrator begins a new epoch."""


class ToolDefinitionError(ToolgateError, ValueError):
    """A tool declaration that cannot be registered."""

    def name_tool(self, name: str) -> None:
        """Prefix the message with the tool's name if it lacks it."""
        if not re.search(rf"(^|\b(of|Tool|that|what) ){re.escape(name)}\b", self.message):
            self.message = f"Tool {name}: {self.message}"
            self.args = (self.message,)


@contextmanager
def naming_tool(name: str) -> Iterator[None]:
    """Add the tool's name to every ToolDefinitionError raised inside."""
    try:
        yield
    except ToolDefinitionError as problem:
        problem.name_tool(name)
        raise


class SchemaProblem(ToolDefinitionError):
    """A JSON Schema refused at registration; `path` is the location in the schema."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{message} (schema at {path or 'its root'})")
        self.path = path


class TypeSignatureError(ToolDefinitionError):
    """Invalid gram; `line` and `column` count from 1, `expected` lists what could stand there."""

    def __init__(self, message: str, *, line: int = 1, column: int = 1, expected: Sequence[str] = ()) -> None:
        super().__init__(f"{message} (line {line}, column {column})")
        self.line = line
        self.column = column
        self.expected = list(expected)


def nested_errors(name: str, error: ParameterError) -> ParameterError:
    """Prefix the paths of an error about a value with `name`, the field of the request body that holds the value."""
    problems = [
        {**each, "path": f"{name}.{each['path']}" if each["path"] else name}
        for each in (error.details or {}).get("errors", ())
    ]
    first = str(problems[0]["path"]) if problems else name
    return ParameterError(error.message, {"field": first, "errors": problems})


def field_error(field: str, code: str, message: str) -> ParameterError:
    problem = {"path": field, "code": code, "message": message}
    return ParameterError(message, {"field": field or None, "errors": [problem]})
