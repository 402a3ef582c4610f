"""Tool declarations: attributes, contract and fingerprint. The pipeline checks, gates and records their calls."""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel

from catalog.context import ToolContext
from catalog.core.canonical_json import canonical_text, digest
from catalog.core.json_paths import JSONPath
from catalog.core.rate_limits import RateLimit, check_rate_limit_group, parse_rate_limits
from catalog.definitions.binding import (
    UNTYPED,
    Binding,
    Handler,
    binding_for,
    handler_output,
    identifier_parameter,
    is_unannotated,
    model_binding,
    output_type_and_schema,
    parameter_names,
)
from catalog.definitions.levels import (
    Reversibility,
    SafetyLevel,
    annotations_for,
    default_reversibility,
    parse_level,
    parse_member,
)
from catalog.definitions.rules import (
    is_concrete_type,
    unique_strings,
    validate_examples,
    validate_name,
    validate_options,
    validate_typed_tool,
    validate_types,
)
from catalog.errors import IdentifierRequired, PromptEvaluationError, ToolDefinitionError, naming_tool
from catalog.results import ToolResult, format_error_response, format_success_response, to_result
from catalog.schemas import Validator
from catalog.schemas.resolver import subschemas
from catalog.secrets.placeholders import SecretLocations

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
FINGERPRINT_COLUMNS = (
    *("description", "input_schema", "output_schema", "safety_level"),
    *("annotations", "reversibility", "retry_safe", "timeout"),
)
"""Content of the fingerprint beside the name: attributes of a tool, and columns of its stored versions."""


class ToolSpec(BaseModel):
    """Declaration of a tool with query types; `input_schema` maps each query type to its parameter model."""

    name: str
    input_schema: dict[str, type[BaseModel]]
    output_key: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class ToolExample(Generic[ParamsT, ResultT]):
    """One representative call, checked against the tool's types when the tool is defined."""

    description: str
    input: ParamsT
    output: ResultT


@dataclass(eq=False, kw_only=True)
class Tool(Generic[ParamsT, ResultT]):
    """A function an agent may call; `timeout` in seconds, `rate_limit` such as "5/min" or "1/5s,20/h".

    Parameter and result types come from the handler's annotations, or from `Tool[Params, Result]` for a tool without a
    handler or annotations.
    `identifier` names the parameter that `requires_identifier` demands; default: "identifier", else the first required.
    `hunks` names the parameter with an entire new text, whose changes reviewers may accept hunk by hunk.
    `when_rejected` is sent to the model with the reviewer's reason; `{path}` stands for the argument `path`.
    The fields from `bound` on are for other ways of declaring tools: `bound` binds the arguments, `reads` makes a
    result of the returned value. Without `fills_defaults`, omitted arguments are not filled in: an upstream server does
    that itself.
    `title` and `hints` of an imported tool are those of its source. `client_tool` is the client's own name of a tool
    that its client runs; it is empty for tools that run here.
    """

    name: str
    description: str
    handler: Any = None
    safety_level: SafetyLevel = SafetyLevel.SAFE
    categories: tuple[str, ...] = ()
    reversibility: Reversibility | None = None
    retry_safe: bool = False
    timeout: float = 30.0
    query_type_models: Mapping[str, Any] | None = None
    output_key: str | None = None
    examples: tuple[ToolExample[Any, Any], ...] = ()
    requires_identifier: bool = False
    identifier: str | None = None
    returns_private_data: bool = False
    rate_limit_key: str | None = None
    rate_limit: str | None = None
    accepts_overrides: bool = True
    secret: tuple[str, ...] = ()
    hunks: str | None = None
    when_rejected: str = ""
    bound: Binding | None = None
    reads: Callable[[Any], ToolResult[Any]] = to_result
    result_type_known: bool = True
    hides_errors: bool = False
    fills_defaults: bool = True
    binding: Binding = field(init=False)
    output_schema: dict[str, Any] | None = field(init=False, default=None)
    title: str = field(init=False, default="")
    client_tool: str = field(init=False, default="")
    hints: Mapping[str, Any] = field(init=False, default_factory=dict)
    rates: tuple[RateLimit, ...] = field(init=False, default=())
    _declared_reversibility: Reversibility | None = field(init=False, default=None, repr=False)
    _previewer: Handler | None = field(init=False, default=None, repr=False)
    _alias: Any = field(init=False, default=None, repr=False)
    _types_pending: bool = field(init=False, default=False, repr=False)
    _refusal: ToolDefinitionError | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        validate_name(self.name)
        with naming_tool(self.name):
            description: object = self.description  # authors may pass anything; other types are refused below
            if isinstance(description, str):
                self.description = description.strip()
            self.safety_level = parse_level(self.safety_level)
            if self.reversibility:
                self._declared_reversibility = parse_member(Reversibility, self.reversibility, "reversibility")
            self.reversibility = self.reversibility_at(self.safety_level)
            self.categories = unique_strings(self.categories, "The categories", self.name)
            self.secret = unique_strings(self.secret, "The secret parameters", self.name)
            self.examples = tuple(self.examples)
            if self.bound is None:
                validate_typed_tool(self)
            if self.handler is not None and not callable(self.handler):
                raise ToolDefinitionError(f"The handler of {self.name} must be a function, not {self.handler!r}.")
            is_declared = self.bound is not None or self.query_type_models is not None
            self._types_pending = not is_declared and self.handler is not None and is_unannotated(self.handler)
            if self.handler is None or self._types_pending:
                self._take(self.bound or Binding({"type": "object"}), UNTYPED, None)
            else:
                binding = self.bound or binding_for(self.handler, self.query_type_models)
                self._take(binding, *(handler_output(self.handler) if self.result_type_known else (UNTYPED, None)))

    def _take(self, binding: Binding, result_type: Any, output_schema: dict[str, Any] | None) -> None:
        self.binding, self._result_type, self.output_schema = binding, result_type, output_schema
        if self.rate_limit_key is not None or self.rate_limit is not None:
            check_rate_limit_group(self.rate_group, self.name)
        self.rates = () if self.rate_limit is None else parse_rate_limits(self.rate_limit, self.name)
        if self._types_pending:
            return
        validate_options(self)
        if self.handler is not None:
            validate_examples(self, result_type)

    @property
    def __orig_class__(self) -> Any:
        """Return `Tool[Params, Result]` as written; typing sets it after the tool is created."""
        return self._alias

    @__orig_class__.setter
    def __orig_class__(self, alias: Any) -> None:
        self._alias = alias
        params, result = get_args(alias)
        if self.handler is None and self.bound is None:
            self._take(model_binding(params), result, None)
        elif self._types_pending:
            try:  # typing may swallow errors raised here
                with naming_tool(self.name):
                    binding, output = model_binding(params), handler_output(self.handler)
                    self._types_pending = False
                    self._take(binding, *(output_type_and_schema(result) if output[0] is UNTYPED else output))
            except ToolDefinitionError as refusal:
                self._refusal = refusal
                raise
        elif self.bound is None and self._result_type is UNTYPED and is_concrete_type(result):
            self._result_type, self.output_schema = output_type_and_schema(result)

    def judge_types(self) -> None:
        """Raise ToolDefinitionError for a handler without types, or with types other than `Tool[Params, Result]`."""
        if self._refusal is not None:
            raise self._refusal
        if self._types_pending:
            with naming_tool(self.name):
                binding_for(self.handler)
        if self._alias is not None:
            validate_types(self, get_args(self._alias), self._result_type)

    def judge_examples(self) -> None:
        validate_examples(self, self._result_type)

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.binding.input_schema

    @property
    def query_types(self) -> Mapping[str, dict[str, Any]] | None:
        return self.binding.query_types

    @property
    def validator(self) -> Validator:
        return self.binding.validator

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)

    @cached_property
    def longest_seconds(self) -> float:
        """Return after how many seconds a call is ended: later than `timeout` if an upstream reports progress."""
        return self.timeout

    @property
    def takes_context(self) -> bool:
        """Return whether the handler or the preview hook receives the ToolContext."""
        functions = (self.handler, self._previewer)
        return any("context" in parameter_names(function) for function in functions if function is not None)

    @cached_property
    def secret_locations(self) -> SecretLocations | None:
        places = SecretLocations(self.input_schema, self.secret)
        return places if places.any else None

    @cached_property
    def reference(self) -> str:
        """Return the handler's location as "module:qualname", empty without a handler."""
        if self.handler is None:
            return ""
        named = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{self.handler.__module__}:{named.__qualname__}"

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the source of the module that defines the handler."""
        return source_digest(self.handler.__module__ if self.handler else "")

    @property
    def runs_in_client(self) -> bool:
        """True if the client of the tool's source runs the calls, and Toolgate only decides on them."""
        return bool(self.client_tool)

    @property
    def annotations(self) -> dict[str, bool]:
        return annotations_for(self.safety_level, retry_safe=self.retry_safe)

    def reversibility_at(self, level: SafetyLevel) -> Reversibility:
        """Return the reversibility at a level: the declared one, else the level's default."""
        return self._declared_reversibility or default_reversibility(level)

    def contract(self) -> dict[str, Any]:
        """Return the data that the fingerprint covers, as JSON."""
        columns = {name: getattr(self, name) for name in FINGERPRINT_COLUMNS}
        plain = {"safety_level": str(self.safety_level), "reversibility": str(self.reversibility)}
        return {"name": self.name} | columns | plain

    @cached_property
    def fingerprint(self) -> str:
        return digest(canonical_text(self.contract()))

    def with_code(self, handler: Handler, previewer: Handler | None, **identity: str) -> "Tool[ParamsT, ResultT]":
        """Return the tool with the same contract and other code; `identity` has the code's reference and digest."""
        other = copy(self)
        other.handler, other._previewer = handler, previewer or self._previewer
        vars(other).pop("is_async", None)
        vars(other).update(identity)
        return other

    def with_changes(
        self, *, description: str, safety_level: SafetyLevel, categories: tuple[str, ...]
    ) -> "Tool[ParamsT, ResultT]":
        """Return the tool with an administrator's settings; the tool itself if nothing differs."""
        changes = (description, safety_level, categories)
        if changes == (self.description, self.safety_level, self.categories):
            return self
        other = copy(self)
        other.description, other.safety_level, other.categories = changes
        other.reversibility = self.reversibility_at(safety_level)
        vars(other).pop("fingerprint", None)
        return other

    def with_contract(self, contract: Mapping[str, Any], *, query_types: Iterable[str]) -> "Tool[ParamsT, ResultT]":
        """Return the tool under a later version of its contract, for calls that another process will run.

        `contract` has at least `description`, `input_schema` and `safety_level`. Arguments are checked by the schema
        alone. Arguments that this code does not know are treated as secret. Raises SchemaProblem.
        """
        other, schema = copy(self), contract["input_schema"]
        other.binding = Binding(schema)
        if query_types:
            forms = [form["properties"] for form in schema.get("oneOf", ())]
            other.binding.query_types = {form["query_type"]["const"]: form["parameters"] for form in forms}
        other.description, other.safety_level = contract["description"], SafetyLevel(contract["safety_level"])
        other.requires_identifier = False
        other.secret = (*self.secret, *sorted(_property_names(schema) - _property_names(self.input_schema)))
        for name in ("fingerprint", "secret_locations"):
            vars(other).pop(name, None)
        return other

    @property
    def rate_group(self) -> str:
        """Return the rate limit group of the tool's calls: the tool's name unless the author sets another."""
        return self.name if self.rate_limit_key is None else self.rate_limit_key

    @property
    def has_preview(self) -> bool:
        return self._previewer is not None

    def preview(self, function: Handler) -> Handler:
        """Decorate the function that previews a call; it takes the same parameters as the handler."""
        self._previewer = function
        return function

    def preview_for(self, arguments: dict[str, Any], context: ToolContext, defaults: Sequence[JSONPath] = ()) -> Any:
        """Return the preview hook's Preview or coroutine, or None without a hook. Raises whatever the hook raises."""
        return None if self._previewer is None else self.binding.call(self._previewer, arguments, context, defaults)

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise ParameterError, IdentifierRequired or QueryTypeUnsupported unless the arguments are valid."""
        if self.requires_identifier:
            self._require_identifier(arguments)
        self.binding.check(arguments, self.name)

    def _require_identifier(self, arguments: dict[str, Any]) -> None:
        given, schema, path = arguments, self.input_schema, ""
        if self.query_types is not None:
            given, schema = arguments.get("parameters", {}), self.query_types.get(str(arguments.get("query_type")), {})
            path = "parameters."
        name = identifier_parameter(schema, self.identifier)
        if not schema or name is None or not isinstance(given, dict):
            return  # the binding reports what is wrong with these arguments
        value = given.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            described = schema.get("properties", {}).get(name, {}).get("description", "")
            raise IdentifierRequired(path + name, described)

    def rejection_message(self, arguments: Mapping[str, Any]) -> str:
        """Return the text that the model receives after a rejection, besides the reviewer's reason; may be empty."""
        texts = {name: value if isinstance(value, str) else "(secret)" for name, value in arguments.items()}
        return self.when_rejected.format_map(texts)

    def call(self, arguments: dict[str, Any], context: ToolContext, defaults: Sequence[JSONPath] = ()) -> Any:
        """Call the handler with checked arguments; an async handler returns its coroutine.

        `defaults` are the paths of arguments that were filled in: a model's `model_fields_set` does not contain them.
        Raises PromptEvaluationError for a tool without a handler.
        """
        if self.handler is None:
            raise PromptEvaluationError(f"Tool '{self.name}' does not have a registered handler.")
        return self.binding.call(self.handler, arguments, context, defaults)

    @property
    def format_success_response(self) -> Callable[..., dict[str, Any]]:
        return partial(format_success_response, tool_name=self.name)

    @property
    def format_error_response(self) -> Callable[..., dict[str, Any]]:
        return partial(format_error_response, tool_name=self.name)


def _property_names(schema: dict[str, Any]) -> set[str]:
    return {name for _, each in subschemas(schema) for name in each.get("properties", ())}


@cache
def source_digest(module: str) -> str:
    source = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(source).read_bytes() if source else module.encode()).hexdigest()
