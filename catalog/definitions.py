"""What a tool is: its levels, its declaration, its contract and fingerprint.

Knows how to call its handler, not when: checking, gating and recording are the pipeline's.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel

from catalog.context import ToolContext
from catalog.core.canonical_json import canonical_text, digest
from catalog.core.rate_limits import Rate, check_group, parse_rates
from catalog.errors import IdentifierRequired, PromptEvaluationError, ToolDefinitionError, about_tool
from catalog.results import ToolResult, as_result, format_error_response, format_success_response
from catalog.schemas import Validator
from catalog.schemas.resolver import subschemas
from catalog.secrets.placeholders import SecretPlaces
from catalog.signatures import (
    UNTYPED,
    Binding,
    Handler,
    binding_for,
    identifier_in,
    is_unannotated,
    model_binding,
    output_of,
    typed_output,
)
from catalog.tool_rules import (
    is_concrete,
    judge_examples,
    judge_name,
    judge_options,
    judge_typed,
    judge_types,
    words_of,
)

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
MemberT = TypeVar("MemberT", bound=StrEnum)


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


def annotations_for(level: SafetyLevel, *, retry_safe: bool) -> dict[str, bool]:
    """Return the hints for clients that follow from a level and from whether a call may be tried again."""
    return {
        "readOnlyHint": level is SafetyLevel.SAFE,
        "destructiveHint": level is SafetyLevel.DANGEROUS,
        "idempotentHint": retry_safe,
    }


class Reversibility(StrEnum):
    """What it costs to take a call back."""

    REVERSIBLE = "reversible"
    RESTORABLE = "restorable"
    IRREVERSIBLE = "irreversible"


def usual_reversibility(level: SafetyLevel) -> Reversibility:
    """Return what taking a call back costs where the author of its tool does not say."""
    return Reversibility.IRREVERSIBLE if level is SafetyLevel.DANGEROUS else Reversibility.REVERSIBLE


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
    """A named affordance an agent may call; `timeout` in seconds, `rate_limit` such as "5/min" or "1/5s,20/h".

    The handler's annotations say what it takes and gives, or `Tool[Params, Result]` does: for a tool without a handler,
    and for whatever the handler leaves unannotated.
    `identifier` names the parameter that `requires_identifier` asks for: else "identifier", else the first required.
    `hunks` names the parameter that holds a whole new text: reviewers may accept its change hunk by hunk.
    `when_rejected` is what the model is told beside the reviewer's reason; `{path}` stands for that argument.
    The last four are for other ways of declaring: what binds the arguments, and how a returned value is read.
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
    reads: Callable[[Any], ToolResult[Any]] = as_result
    typed_result: bool = True
    hides_errors: bool = False
    binding: Binding = field(init=False)
    output_schema: dict[str, Any] | None = field(init=False, default=None)
    rates: tuple[Rate, ...] = field(init=False, default=())
    _declared_reversibility: Reversibility | None = field(init=False, default=None, repr=False)
    _previewer: Handler | None = field(init=False, default=None, repr=False)
    _alias: Any = field(init=False, default=None, repr=False)
    _awaits_types: bool = field(init=False, default=False, repr=False)
    _refusal: ToolDefinitionError | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        judge_name(self.name)
        with about_tool(self.name):
            self._settle()

    def _settle(self) -> None:
        """Bring what was declared into its types, and judge it; raise ToolDefinitionError."""
        description: object = self.description  # what an author wrote; other types are refused below
        if isinstance(description, str):
            self.description = description.strip()
        self.safety_level = level_of(self.safety_level)
        if self.reversibility:
            self._declared_reversibility = _member(Reversibility, self.reversibility, "reversibility")
        self.reversibility = self.reversibility_at(self.safety_level)
        self.categories = words_of(self.categories, "The categories", self.name)
        self.secret = words_of(self.secret, "The secret parameters", self.name)
        self.examples = tuple(self.examples)
        if self.bound is None:
            judge_typed(self)
        if self.handler is not None and not callable(self.handler):
            raise ToolDefinitionError(f"The handler of {self.name} must be a function, not {self.handler!r}.")
        is_declared = self.bound is not None or self.query_type_models is not None
        self._awaits_types = not is_declared and self.handler is not None and is_unannotated(self.handler)
        self._take(*self._types())

    def _types(self) -> tuple[Binding, Any, dict[str, Any] | None]:
        if self.handler is None or self._awaits_types:
            return self.bound or Binding({"type": "object"}), UNTYPED, None
        binding = self.bound or binding_for(self.handler, self.query_type_models)
        return (binding, *(output_of(self.handler) if self.typed_result else (UNTYPED, None)))

    def _take(self, binding: Binding, result_type: Any, output_schema: dict[str, Any] | None) -> None:
        """Settle what the tool takes and gives, and judge what depends on it."""
        self.binding, self._result_type, self.output_schema = binding, result_type, output_schema
        self.rates = _rates_of(self)
        if self._awaits_types:
            return
        judge_options(self)
        if self.handler is not None:
            judge_examples(self, result_type)

    @property
    def __orig_class__(self) -> Any:
        """Return `Tool[Params, Result]` as it was written; typing sets it once the tool is made."""
        return self._alias

    @__orig_class__.setter
    def __orig_class__(self, alias: Any) -> None:
        self._alias = alias
        params, result = get_args(alias)
        if self.handler is None and self.bound is None:
            self._take(model_binding(params), result, None)
        elif self._awaits_types:
            self._take_types(params, result)
        elif self.bound is None and self._result_type is UNTYPED and is_concrete(result):
            self._result_type, self.output_schema = typed_output(result)

    def _take_types(self, params: Any, result: Any) -> None:
        """Take what `Tool[Params, Result]` says in place of annotations; typing may keep its errors to itself."""
        try:
            with about_tool(self.name):
                binding, output = model_binding(params), output_of(self.handler)
                self._awaits_types = False
                self._take(binding, *(typed_output(result) if output[0] is UNTYPED else output))
        except ToolDefinitionError as refusal:
            self._refusal = refusal
            raise

    def judge_types(self) -> None:
        """Raise ToolDefinitionError for a handler without types, or of other ones than `Tool[Params, Result]` says."""
        if self._refusal is not None:
            raise self._refusal
        if self._awaits_types:
            with about_tool(self.name):
                binding_for(self.handler)
        if self._alias is not None:
            judge_types(self, get_args(self._alias), self._result_type)

    def judge_examples(self) -> None:
        """Raise ToolDefinitionError for an example that is not what the tool takes and gives."""
        judge_examples(self, self._result_type)

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
    def secret_places(self) -> SecretPlaces | None:
        """Return which places of the arguments are secret; None where none is."""
        places = SecretPlaces(self.input_schema, self.secret)
        return places if places.any else None

    @cached_property
    def reference(self) -> str:
        """Return where the handler is, as "module:qualname"; empty without one."""
        if self.handler is None:
            return ""
        named = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{self.handler.__module__}:{named.__qualname__}"

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the source of the module that defines the handler."""
        return source_digest(self.handler.__module__ if self.handler else "")

    @property
    def annotations(self) -> dict[str, bool]:
        """Return the hints that follow from the level and from `retry_safe`."""
        return annotations_for(self.safety_level, retry_safe=self.retry_safe)

    def reversibility_at(self, level: SafetyLevel) -> Reversibility:
        """Return what taking a call back costs at a level: what the author declared, else what is usual there."""
        return self._declared_reversibility or usual_reversibility(level)

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

    def with_code(self, handler: Handler, previewer: Handler | None, **identity: str) -> "Tool[ParamsT, ResultT]":
        """Return the tool with other code behind the same contract; `identity` is the code's reference and digest."""
        other = copy(self)
        other.handler, other._previewer = handler, previewer or self._previewer
        vars(other).pop("is_async", None)
        vars(other).update(identity)
        return other

    def with_terms(
        self, *, description: str, safety_level: SafetyLevel, categories: tuple[str, ...]
    ) -> "Tool[ParamsT, ResultT]":
        """Return the tool as an administrator has set it; itself where nothing differs."""
        wanted = (description, safety_level, categories)
        if wanted == (self.description, self.safety_level, self.categories):
            return self
        other = copy(self)
        other.description, other.safety_level, other.categories = wanted
        other.reversibility = self.reversibility_at(safety_level)
        vars(other).pop("fingerprint", None)
        return other

    def with_contract(self, contract: Mapping[str, Any], *, query_types: Iterable[str]) -> "Tool[ParamsT, ResultT]":
        """Return the tool under a later version of its contract, for calls that another process is to run.

        `contract` has at least `description`, `input_schema` and `safety_level`. Arguments are checked by the schema
        alone, and those that this code does not know count as secret: it cannot tell. Raises SchemaProblem.
        """
        other, schema = copy(self), contract["input_schema"]
        other.binding = Binding(schema)
        if query_types:
            other.binding.query_types = _query_types_in(schema)
        other.description, other.safety_level = contract["description"], SafetyLevel(contract["safety_level"])
        other.requires_identifier = False
        other.secret = (*self.secret, *sorted(_names_in(schema) - _names_in(self.input_schema)))
        for name in ("fingerprint", "secret_places"):
            vars(other).pop(name, None)
        return other

    @property
    def rate_group(self) -> str:
        """Return the group that its calls are counted in: the tool's own name unless the author says otherwise."""
        return self.name if self.rate_limit_key is None else self.rate_limit_key

    @property
    def has_preview(self) -> bool:
        """Say whether the tool can show what a call would do."""
        return self._previewer is not None

    def preview(self, function: Handler) -> Handler:
        """Register the hook that shows what a call would do (decorator); it takes what the handler takes."""
        self._previewer = function
        return function

    def preview_for(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Return what the hook gives: a Preview, or an async hook's coroutine; None without a hook.

        Raises whatever the hook raises.
        """
        return None if self._previewer is None else self.binding.call(self._previewer, arguments, context)

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise ParameterError or QueryTypeUnsupported unless the arguments fit.

        Without the identifier that the tool requires this is IdentifierRequired, with a question for the user.
        """
        if self.requires_identifier:
            self._ask_for_identifier(arguments)
        self.binding.check(arguments, self.name)

    def _ask_for_identifier(self, arguments: dict[str, Any]) -> None:
        given, schema, path = arguments, self.input_schema, ""
        if self.query_types is not None:
            given, schema = arguments.get("parameters", {}), self.query_types.get(str(arguments.get("query_type")), {})
            path = "parameters."
        name = identifier_in(schema, self.identifier)
        if not schema or name is None or not isinstance(given, dict):
            return  # what is wrong with these arguments is for the binding to say
        value = given.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            described = schema.get("properties", {}).get(name, {}).get("description", "")
            raise IdentifierRequired(path + name, described)

    def told_when_rejected(self, arguments: Mapping[str, Any]) -> str:
        """Return what the model is told beside the reviewer's reason when people reject a call; empty for nothing."""
        texts = {name: value if isinstance(value, str) else "(secret)" for name, value in arguments.items()}
        return self.when_rejected.format_map(texts)

    def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the handler with checked arguments; an async handler gives its coroutine.

        Raises PromptEvaluationError for a tool that has no handler.
        """
        if self.handler is None:
            raise PromptEvaluationError(f"Tool '{self.name}' does not have a registered handler.")
        return self.binding.call(self.handler, arguments, context)

    @property
    def format_success_response(self) -> Callable[..., dict[str, Any]]:
        """Make the standard response of a call that worked."""
        return partial(format_success_response, tool_name=self.name)

    @property
    def format_error_response(self) -> Callable[..., dict[str, Any]]:
        """Make the standard response of a call that failed."""
        return partial(format_error_response, tool_name=self.name)


def _names_in(schema: dict[str, Any]) -> set[str]:
    """Return the names of all properties that a schema declares."""
    return {name for _, each in subschemas(schema) for name in each.get("properties", ())}


def _query_types_in(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of each query type in the schema of a tool that has some."""
    forms = [form["properties"] for form in schema.get("oneOf", ())]
    return {form["query_type"]["const"]: form["parameters"] for form in forms}


def _rates_of(tool: Tool[Any, Any]) -> tuple[Rate, ...]:
    """Return how often one caller may use the tool; raise ToolDefinitionError for a limit that cannot be read."""
    if tool.rate_limit_key is not None or tool.rate_limit is not None:
        check_group(tool.rate_group, tool.name)
    return () if tool.rate_limit is None else parse_rates(tool.rate_limit, tool.name)


def _member(kind: type[MemberT], value: str, what: str) -> MemberT:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(str(member) for member in kind)
        raise ToolDefinitionError(f"The {what} must be one of {choices}, not {value!r}.") from None


@cache
def source_digest(module: str) -> str:
    """Return the SHA-256 of the source of a loaded module; of its name where it has no source."""
    source = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(source).read_bytes() if source else module.encode()).hexdigest()
