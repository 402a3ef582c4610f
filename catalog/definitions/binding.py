"""Binding of JSON arguments to handlers: the schema from annotations, and the handler's values from arguments."""

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import DEFAULT_REF_TEMPLATE

from catalog.core.json_paths import JSONPath, dotted
from catalog.errors import ParameterError, QueryTypeUnsupported, ToolDefinitionError
from catalog.results import ToolResult
from catalog.schemas import ArgumentProblem, Validator, compile_schema, raise_for_problems
from catalog.schemas.defaults import FilledArguments
from catalog.schemas.resolver import subschemas

Handler = Callable[..., Any]
Schema = dict[str, Any]

_JSON_TYPES = frozenset({str, int, float, bool, type(None), Any, dict, list})
_KEYWORD_PARAMETER_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)
_CONTAINER_ORIGINS = frozenset({dict, list, Union, types.UnionType})
_MISSING = inspect.Parameter.empty
UNTYPED: Any = _MISSING
"""Result type of a handler without a return annotation."""
# The fields of the model made from a function's keywords are prefixed, so that none shadows a pydantic attribute.
_FIELD_PREFIX = "argument_"
_ENVELOPE = frozenset({"query_type", "parameters"})


class Binding:
    """Arguments passed unchanged to the handler as one JSON object (positional)."""

    query_types: Mapping[str, Schema] | None = None
    params_type: Any = dict
    has_default_factories = False
    """An optional argument without a default in the schema gets a value when the handler is called."""

    def __init__(self, schema: Schema) -> None:
        self.input_schema = schema
        self.validator: Validator = compile_schema(schema)

    def check(self, arguments: dict[str, Any], tool_name: str) -> None:
        """Raise ParameterError unless the arguments are valid."""
        found = self.validator.problems(arguments)
        known = self.input_schema.get("properties", {})
        is_wrapped = "query_type" in arguments and "query_type" not in known and arguments.keys() <= _ENVELOPE
        if found and is_wrapped and self.query_types is None:
            message = "This tool has no query types. Send only its arguments."
            found = [ArgumentProblem("query_type", "query_type", message)]
        raise_for_problems(found)

    def fill_defaults(self, arguments: dict[str, Any]) -> FilledArguments:
        """Return valid arguments with the defaults of omitted members. Raises ParameterError if those are too large."""
        return self.validator.defaults.fill(arguments)

    def faithful_defaults(
        self, given: dict[str, Any], passed: dict[str, Any], paths: tuple[JSONPath, ...]
    ) -> tuple[JSONPath, ...]:
        """Return the paths of those defaults that the handler receives unchanged, whether they are passed or left out.

        Other defaults must not be passed: the schema has asterisks for a secret, and validators do not check defaults.
        """
        return paths

    def call(
        self, function: Handler, arguments: dict[str, Any], context: object, defaults: Sequence[JSONPath] = ()
    ) -> Any:
        """Call a handler or preview hook with checked arguments; `defaults` are the paths that were filled in."""
        if "context" in parameter_names(function):
            return function(arguments, context=context)
        return function(arguments)


class CheckedBinding(Binding):
    """Arguments passed as one dict. If a model declares them, its validators check them too."""

    def __init__(self, schema: Schema, adapter: TypeAdapter[Any] | None = None) -> None:
        self._adapter = adapter
        super().__init__(schema)

    @classmethod
    def of(cls, declared: Any, tool_name: str) -> Self:
        """Return the binding of a model, dataclass or JSON Schema. Keys that `declared` does not allow are refused."""
        if not isinstance(declared, Mapping):
            adapter = TypeAdapter[Any](declared)
            return cls(parameter_schema(adapter, declared), adapter)
        if declared.get("type") != "object":
            raise ToolDefinitionError(f"The parameters of {tool_name} must be an object schema, not {declared!r}.")
        closed = {"additionalProperties": False} if "properties" in declared else {}
        return cls(closed | dict(declared))

    def check(self, arguments: dict[str, Any], tool_name: str) -> None:
        super().check(arguments, tool_name)
        if self._adapter is not None:
            build_params(self._adapter, arguments, names=self.input_schema["properties"])

    def faithful_defaults(
        self, given: dict[str, Any], passed: dict[str, Any], paths: tuple[JSONPath, ...]
    ) -> tuple[JSONPath, ...]:
        if self._adapter is None:
            return paths
        before, after = (build_params(self._adapter, each) for each in (given, passed))
        return tuple(path for path in paths if _is_same(_value_at(before, path), _value_at(after, path)))


class KeywordBinding(Binding):
    """Arguments passed as keywords to a function whose annotations are plain JSON types."""

    params_type = None
    has_default_factories = True

    def call(
        self, function: Handler, arguments: dict[str, Any], context: object, defaults: Sequence[JSONPath] = ()
    ) -> Any:
        if "context" in parameter_names(function):
            return function(**arguments, context=context)
        return function(**arguments)


class ModelBinding(Binding):
    """Arguments passed as typed values: one value `params`, or one keyword for each field if `spread`."""

    has_default_factories = True

    def __init__(self, params_type: Any, *, spread: bool = False) -> None:
        self.params_type = params_type
        self._spread = spread
        self.adapter = TypeAdapter[Any](params_type)
        super().__init__(parameter_schema(self.adapter, params_type))

    def check(self, arguments: dict[str, Any], tool_name: str) -> None:
        super().check(arguments, tool_name)
        self._build(arguments)

    def faithful_defaults(
        self, given: dict[str, Any], passed: dict[str, Any], paths: tuple[JSONPath, ...]
    ) -> tuple[JSONPath, ...]:
        before, after = self._build(given), self._build(passed)
        return tuple(path for path in paths if _is_same(_value_at(before, path), _value_at(after, path)))

    def _build(self, arguments: dict[str, Any]) -> Any:
        return build_params(self.adapter, arguments, names=self.input_schema["properties"])

    def call(
        self, function: Handler, arguments: dict[str, Any], context: object, defaults: Sequence[JSONPath] = ()
    ) -> Any:
        value = self._build(arguments)
        passed = {} if not self._spread else {name: getattr(value, name) for name in value.model_fields_set}
        _mark_as_unset(value, defaults)
        if not self._spread:
            return _call_with_value(function, value, context)
        keywords = {name.removeprefix(_FIELD_PREFIX): each for name, each in passed.items()}
        return function(**keywords, **_matching_keywords(function, {"context": context}))


class NoParameters(Binding):
    """No arguments: the handler's `params` is None."""

    params_type = type(None)

    def __init__(self) -> None:
        super().__init__({"type": "object", "properties": {}, "additionalProperties": False})

    def call(
        self, function: Handler, arguments: dict[str, Any], context: object, defaults: Sequence[JSONPath] = ()
    ) -> Any:
        return _call_with_value(function, None, context)


class QueryBinding(Binding):
    """Arguments as `{"query_type": …, "parameters": {…}}`, with one parameter model for each query type."""

    has_default_factories = True

    def __init__(self, models: Mapping[str, Any]) -> None:
        if not models:
            raise ToolDefinitionError("query_types is empty.")
        self.adapters = {name: TypeAdapter[Any](model) for name, model in models.items()}
        self.query_types: Mapping[str, Schema] = {
            name: parameter_schema(self.adapters[name], model) for name, model in models.items()
        }
        self.params_type = tuple(models.values())
        self._validators = {name: compile_schema(schema) for name, schema in self.query_types.items()}
        branches = []
        for index, (name, model) in enumerate(models.items()):
            place = f"#/oneOf/{index}/properties/parameters/$defs/{{model}}"
            parameters = parameter_schema(self.adapters[name], model, place)
            branches.append(
                {
                    "type": "object",
                    "properties": {"query_type": {"const": name}, "parameters": parameters},
                    "required": ["query_type", *(["parameters"] if parameters.get("required") else [])],
                    "additionalProperties": False,
                }
            )
        super().__init__({"type": "object", "oneOf": branches})

    def check(self, arguments: dict[str, Any], tool_name: str) -> None:
        """Raise QueryTypeUnsupported, or ParameterError with paths below `parameters`."""
        raise_for_problems(_envelope.problems(arguments))
        query_type = arguments["query_type"]
        if query_type not in self.adapters:
            raise QueryTypeUnsupported(query_type, tool_name, list(self.adapters))
        parameters = arguments.get("parameters", {})
        found = self._validators[query_type].problems(parameters)
        raise_for_problems([replace(each, path=dotted(filter(None, ("parameters", each.path)))) for each in found])
        self._build(query_type, parameters)

    def fill_defaults(self, arguments: dict[str, Any]) -> FilledArguments:
        if "parameters" in arguments:
            return super().fill_defaults(arguments)
        filled = super().fill_defaults(arguments | {"parameters": {}})
        # A default that the query type refuses must be removable by its own path.
        return FilledArguments(filled.arguments, (("parameters",), *filled.paths))

    def faithful_defaults(
        self, given: dict[str, Any], passed: dict[str, Any], paths: tuple[JSONPath, ...]
    ) -> tuple[JSONPath, ...]:
        before, after = (self._build(each["query_type"], each.get("parameters", {})) for each in (given, passed))
        return tuple(
            path
            for path in paths
            if len(path) == 1 or _is_same(_value_at(before, path[1:]), _value_at(after, path[1:]))
        )

    def _build(self, query_type: str, parameters: Any) -> Any:
        names = self.query_types[query_type]["properties"]
        return build_params(self.adapters[query_type], parameters, "parameters", names=names)

    def call(
        self, function: Handler, arguments: dict[str, Any], context: object, defaults: Sequence[JSONPath] = ()
    ) -> Any:
        query_type = arguments["query_type"]
        params = self._build(query_type, arguments.get("parameters", {}))
        _mark_as_unset(params, [path[1:] for path in defaults if len(path) > 1])
        offered = {"params": params, "query_type": query_type, "context": context}
        return function(**_matching_keywords(function, offered))


def _mark_as_unset(value: Any, defaults: Iterable[JSONPath]) -> None:
    """Remove the members at these paths from the `model_fields_set` of the models inside a built value."""
    for *steps, name in defaults:
        parent = _value_at(value, steps)
        if isinstance(parent, BaseModel):
            parent.__pydantic_fields_set__.discard(_field_name(parent, name))


def _value_at(value: Any, path: Iterable[str | int]) -> Any:
    """Return the part of a built value at a path in its arguments; None if that part cannot be determined."""
    for step in path:
        if isinstance(value, BaseModel):
            value = getattr(value, _field_name(value, step), None)
        elif isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list | tuple) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            is_field = isinstance(step, str) and dataclasses.is_dataclass(value)
            value = getattr(value, str(step), None) if is_field else None
    return value


def _is_same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - comparison by the author's type
        return False


def _field_name(model: BaseModel, name: object) -> str:
    for field, facts in type(model).model_fields.items():
        alias = facts.validation_alias
        if name in (facts.alias, *(alias.choices if isinstance(alias, AliasChoices) else [alias])):
            return field
    return str(name)


def binding_for(handler: Handler, query_types: Mapping[str, Any] | None = None) -> Binding:
    if query_types is not None:
        return QueryBinding(query_types)
    hints = resolved_hints(handler)
    parameters = [each for each in inspect.signature(handler).parameters.values() if each.name != "context"]
    if len(parameters) == 1 and parameters[0].name == "params":
        if "params" not in hints:
            raise ToolDefinitionError(f"{handler.__name__}: annotate params with a pydantic model or dataclass.")
        return model_binding(hints["params"])
    fields = {_FIELD_PREFIX + each.name: _model_field(each, hints) for each in parameters}
    model = create_model(handler.__name__, __config__=ConfigDict(extra="forbid"), **fields)  # type: ignore[call-overload]
    typed = ModelBinding(model, spread=True)
    plain = all(_is_json_type(annotation) for annotation, _ in fields.values())
    return KeywordBinding(typed.input_schema) if plain else typed


def is_unannotated(handler: Handler) -> bool:
    """Return whether a handler takes a single value without annotation, apart from its context."""
    try:
        parameters = [each for each in inspect.signature(handler).parameters.values() if each.name != "context"]
    except (TypeError, ValueError):
        return False
    one = parameters[0] if len(parameters) == 1 else None
    return one is not None and one.kind in _KEYWORD_PARAMETER_KINDS and one.name not in resolved_hints(handler)


def model_binding(params_type: Any) -> Binding:
    """Return the binding of a parameter type; None means that the tool has no parameters."""
    return NoParameters() if params_type in (None, type(None)) else ModelBinding(params_type)


def build_params(adapter: TypeAdapter[Any], arguments: object, prefix: str = "", *, names: Iterable[str] = ()) -> Any:
    """Return the typed value. Raises ParameterError if an author's validator refuses it.

    Errors of model-level validators have no location; each goes to the first of `names` that its message mentions.
    """
    try:
        return adapter.validate_python(arguments)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
    except Exception as error:
        raise ParameterError(f"A validator of the tool failed with {type(error).__name__}.") from error
    problems = []
    for each in found:
        words = set(re.findall(r"\w+", each["msg"]))
        # A validator of the whole model names the parameter in its message only.
        place = dotted(each["loc"]) or next((name for name in names if name in words), "")
        message = each["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        problems.append(ArgumentProblem(dotted(filter(None, (prefix, place))), each["type"], message))
    raise_for_problems(problems)
    raise ParameterError("The parameters are invalid.")


def parameter_schema(adapter: TypeAdapter[Any], kind: Any, references: str = DEFAULT_REF_TEMPLATE) -> Schema:
    """Return the JSON Schema of a parameter type, without titles, refusing unknown keys."""
    try:
        schema = adapter.json_schema(ref_template=references)
    except PydanticUserError as error:
        raise ToolDefinitionError(f"{kind!r} has no JSON Schema: {error.message.splitlines()[0]}") from None
    for _, subschema in subschemas(schema):
        subschema.pop("title", None)
        if "properties" in subschema:
            subschema["additionalProperties"] = False
    if "$ref" in schema:  # a recursive type is one of its own definitions
        schema |= schema["$defs"][schema.pop("$ref").rpartition("/")[2]]
    if schema.get("type") != "object":
        raise ToolDefinitionError(f"{kind!r} is not a pydantic model or dataclass, so it has no named parameters.")
    return schema | {"properties": schema.get("properties", {}), "additionalProperties": False}


def identifier_parameter(schema: Schema, named: str | None = None) -> str | None:
    """Return the parameter that identifies a call's subject: `named`, else `identifier`, else the first required."""
    properties = schema.get("properties", {})
    if not properties and schema.get("additionalProperties", True) is not False:
        return named or "identifier"  # accepts any object
    if named is not None:
        return named if named in properties else None
    candidates = (*(name for name in properties if name == "identifier"), *schema.get("required", ()), *properties)
    return next(iter(candidates), None)


def handler_output(handler: Handler) -> tuple[Any, Schema | None]:
    """Return a handler's result type (for a ToolResult, the type inside it) and its JSON Schema, if any."""
    kind = resolved_hints(handler).get("return", _MISSING)
    if get_origin(kind) is ToolResult:
        kind = get_args(kind)[0]
    return (_MISSING, None) if kind is ToolResult else output_type_and_schema(kind)


def output_type_and_schema(kind: Any) -> tuple[Any, Schema | None]:
    """Return a result type and its JSON Schema, if any; both are unknown for Any or a missing annotation."""
    if kind in (_MISSING, Any):
        return _MISSING, None
    try:
        schema = TypeAdapter(kind).json_schema(mode="serialization")
    except PydanticUserError:
        return kind, None
    for _, subschema in subschemas(schema):
        subschema.pop("title", None)
    return kind, schema


def parameter_names(function: Handler) -> frozenset[str]:
    names = _parameter_names.get(function)
    if names is None:
        try:
            names = frozenset(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            names = frozenset()  # written in C, without a signature
        _parameter_names[function] = names
    return names


def resolved_hints(handler: Handler) -> dict[str, Any]:
    """Return a handler's resolved annotations. Raises ToolDefinitionError if one cannot be resolved."""
    try:
        return get_type_hints(handler, include_extras=True)
    except NameError as error:
        raise ToolDefinitionError(f"{handler.__qualname__}: an annotation cannot be resolved: {error}") from None


_parameter_names: dict[Handler, frozenset[str]] = {}
_envelope = compile_schema(
    {
        "type": "object",
        "properties": {"query_type": {"type": "string", "maxLength": 100}, "parameters": {"type": "object"}},
        "required": ["query_type"],
        "additionalProperties": False,
    }
)


def _model_field(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> tuple[Any, Any]:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise ToolDefinitionError(f"{parameter}: *args and **kwargs cannot be tool parameters.")
    if parameter.name not in hints:
        raise ToolDefinitionError(f"The parameter {parameter.name} needs a type annotation.")
    if isinstance(parameter.default, FieldInfo):
        raise ToolDefinitionError(
            f"The parameter {parameter.name}: put Field(…) into Annotated and assign only the default."
        )
    default = ... if parameter.default is _MISSING else parameter.default
    return hints[parameter.name], Field(default, alias=parameter.name)


def _is_json_type(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_json_type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return all(type(choice) in _JSON_TYPES for choice in get_args(annotation))
    if get_origin(annotation) in _CONTAINER_ORIGINS:
        return all(_is_json_type(inner) for inner in get_args(annotation))
    return annotation in _JSON_TYPES


def _matching_keywords(function: Handler, offered: Mapping[str, Any]) -> dict[str, Any]:
    names = parameter_names(function)
    return {name: value for name, value in offered.items() if name in names}


def _call_with_value(function: Handler, value: object, context: object) -> Any:
    names = parameter_names(function)
    beside = {"context": context} if "context" in names else {}
    if "params" in names:
        return function(params=value, **beside)
    return function(value, **beside) if names - {"context"} else function(**beside)
