"""What a tool is: its levels, its declaration, its contract and fingerprint.

Knows how to call its handler, not when: checking, gating and recording are the pipeline's.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from catalog.canonical import canonical_text, check_json, digest
from catalog.context import Deadline, ToolContext
from catalog.errors import ParameterError, ToolDefinitionError
from catalog.results import Preview, format_error_response, format_success_response
from catalog.runners.python import settle
from catalog.schema_rules import subschemas
from catalog.schemas import Validator
from catalog.signatures import Binding, Handler, binding_for, output_of

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
MemberT = TypeVar("MemberT", bound=StrEnum)

CATALOG_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
PREVIEW_SECONDS = 10.0
MAX_TIMEOUT = 24 * 60 * 60
MAX_DESCRIPTION = 200


class SafetyLevel(StrEnum):
    """What a call may do to the world, and so who must agree."""

    SAFE = "safe"
    CAUTIOUS = "cautious"
    DANGEROUS = "dangerous"

    @property
    def rank(self) -> int:
        """Return the place in the order safe < cautious < dangerous."""
        return list(SafetyLevel).index(self)

    @classmethod
    def _missing_(cls, value: object) -> "SafetyLevel | None":
        return cls.CAUTIOUS if value == "moderate" else None


def level_of(value: str) -> SafetyLevel:
    """Return the level of this name; raise ToolDefinitionError."""
    return _member(SafetyLevel, value, "safety level")


class Reversibility(StrEnum):
    """What it costs to take a call back."""

    REVERSIBLE = "reversible"
    RESTORABLE = "restorable"
    IRREVERSIBLE = "irreversible"


class ToolSpec(BaseModel):
    """What a tool with query types expects and returns: query type → parameter model."""

    name: str
    input_schema: dict[str, type[BaseModel]]
    output_key: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class ToolExample(Generic[ParamsT, ResultT]):
    """One representative call; checked against the tool's types when the tool is defined."""

    description: str
    input: ParamsT
    output: ResultT


@dataclass(eq=False, kw_only=True)
class Tool(Generic[ParamsT, ResultT]):
    """A named affordance an agent may call; `timeout` in seconds, `rate_limit` such as "5/min"."""

    name: str
    description: str
    handler: Handler
    safety_level: SafetyLevel = SafetyLevel.SAFE
    categories: tuple[str, ...] = ()
    reversibility: Reversibility | None = None
    retry_safe: bool = False
    timeout: float = 30.0
    query_type_models: Mapping[str, Any] | None = None
    output_key: str | None = None
    examples: tuple[ToolExample[Any, Any], ...] = ()
    requires_identifier: bool = False
    returns_private_data: bool = False
    rate_limit_key: str | None = None
    rate_limit: str | None = None
    accepts_overrides: bool = True
    secret: tuple[str, ...] = ()
    bound: Binding | None = None
    binding: Binding = field(init=False)
    output_schema: dict[str, Any] | None = field(init=False, default=None)
    _previewer: Handler | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if not CATALOG_NAME.fullmatch(self.name):
            raise ToolDefinitionError(f"The tool name {self.name!r} must be 1 to 64 letters, digits, '_' or '-'.")
        self.safety_level = level_of(self.safety_level)
        usual = Reversibility.IRREVERSIBLE if self.safety_level is SafetyLevel.DANGEROUS else Reversibility.REVERSIBLE
        self.reversibility = _member(Reversibility, self.reversibility or usual, "reversibility")
        self.categories, self.secret = tuple(self.categories), tuple(self.secret)
        self.examples = tuple(self.examples)
        self.binding = self.bound or binding_for(self.handler, self.query_type_models)
        self._result_type, self.output_schema = output_of(self.handler)
        _judge_options(self)
        for example in self.examples:
            _judge_example(example, self.binding, self._result_type)

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return self.binding.input_schema

    @property
    def query_types(self) -> Mapping[str, dict[str, Any]] | None:
        """Return query type → JSON Schema of its parameters, None for a tool without query types."""
        return self.binding.query_types

    @property
    def validator(self) -> Validator:
        """Return the compiled validator of the arguments."""
        return self.binding.validator

    @cached_property
    def is_async(self) -> bool:
        """Say whether the handler is a coroutine function."""
        return inspect.iscoroutinefunction(self.handler)

    @cached_property
    def reference(self) -> str:
        """Return where the handler is, as "module:qualname"."""
        named = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{self.handler.__module__}:{named.__qualname__}"

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the source of the module that defines the handler."""
        return _source_digest(self.handler.__module__)

    @property
    def annotations(self) -> dict[str, bool]:
        """Return the hints that follow from the level and from `retry_safe`."""
        return {
            "readOnlyHint": self.safety_level is SafetyLevel.SAFE,
            "destructiveHint": self.safety_level is SafetyLevel.DANGEROUS,
            "idempotentHint": self.retry_safe,
        }

    def contract(self) -> dict[str, Any]:
        """Return what the fingerprint covers, as JSON."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "safety_level": str(self.safety_level),
            "annotations": self.annotations,
            "reversibility": str(self.reversibility),
            "retry_safe": self.retry_safe,
            "timeout": self.timeout,
        }

    @cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the contract's canonical text."""
        return digest(canonical_text(self.contract()))

    @property
    def has_preview(self) -> bool:
        """Say whether the tool can show what a call would do."""
        return self._previewer is not None

    def preview(self, function: Handler) -> Handler:
        """Register the hook that shows what a call would do (decorator); it takes what the handler takes."""
        self._previewer = function
        return function

    def preview_for(self, arguments: dict[str, Any], context: ToolContext) -> Preview | None:
        """Return what the call would do, None without a hook; raise whatever the hook raises."""
        if self._previewer is None:
            return None
        shown = self.binding.call(self._previewer, arguments, context)
        return _as_preview(settle(shown, Deadline.after(min(self.timeout, PREVIEW_SECONDS))))

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise ParameterError or QueryTypeUnsupported unless the arguments fit."""
        self.binding.check(arguments, self.name)

    def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the handler with checked arguments; an async handler gives its coroutine."""
        return self.binding.call(self.handler, arguments, context)

    @property
    def format_success_response(self) -> Callable[..., dict[str, Any]]:
        """Make the standard response of a call that worked."""
        return partial(format_success_response, tool_name=self.name)

    @property
    def format_error_response(self) -> Callable[..., dict[str, Any]]:
        """Make the standard response of a call that failed."""
        return partial(format_error_response, tool_name=self.name)


def _judge_options(tool: Tool[Any, Any]) -> None:
    if not 0 < tool.timeout <= MAX_TIMEOUT:
        raise ToolDefinitionError(f"The timeout of {tool.name} must be more than 0 and at most {MAX_TIMEOUT} seconds.")
    known = {name for _, schema in subschemas(tool.input_schema) for name in schema.get("properties", ())}
    unknown = sorted(set(tool.secret) - known)
    if unknown:
        raise ToolDefinitionError(f"secret names parameters that {tool.name} does not have: {', '.join(unknown)}.")


def _member(kind: type[MemberT], value: str, what: str) -> MemberT:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(str(member) for member in kind)
        raise ToolDefinitionError(f"The {what} must be one of {choices}, not {value!r}.") from None


def _as_preview(shown: object) -> Preview:
    if not isinstance(shown, Preview):
        raise TypeError(f"A preview hook must return a Preview, not {type(shown).__name__}.")
    check_json(to_jsonable_python(shown))
    return shown


@cache
def _source_digest(module: str) -> str:
    source = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(source).read_bytes() if source else module.encode()).hexdigest()


def _judge_example(example: ToolExample[Any, Any], binding: Binding, result_type: Any) -> None:
    text = example.description.strip()
    if not 1 <= len(text) <= MAX_DESCRIPTION:
        raise ToolDefinitionError(f"An example's description has 1 to {MAX_DESCRIPTION} characters.")
    if not _fits_params(example.input, binding):
        raise ToolDefinitionError(f"The input of the example {text!r} is not what the tool takes.")
    if not _fits_result(example.output, result_type):
        raise ToolDefinitionError(f"The output of the example {text!r} is not what the tool gives.")


def _fits_params(value: object, binding: Binding) -> bool:
    if isinstance(binding.params_type, type) and binding.params_type is not dict:
        return type(value) is binding.params_type
    if isinstance(binding.params_type, tuple):
        return type(value) in binding.params_type
    try:
        binding.check(value, "") if isinstance(value, dict) else None
    except ParameterError:
        return False
    return isinstance(value, dict)


def _fits_result(value: object, kind: Any) -> bool:
    if kind is type(None) or kind is None:
        return value is None
    if get_origin(kind) in (list, tuple):
        inner = get_args(kind)[0]
        return isinstance(value, list | tuple) and all(_fits_result(each, inner) for each in value)
    return type(value) is kind if isinstance(kind, type) and kind is not inspect.Parameter.empty else True
