"""Prepared arguments: defaults filled in, nulls left out, large integers read from their digits."""

from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from catalog.core.canonical_json import canonical_text
from catalog.definitions.binding import Binding, CheckedBinding
from catalog.definitions.tool import Tool
from catalog.dispatch.arguments import (
    CallArguments,
    paths_to_store,
    prepare_arguments,
    stored_arguments,
    without_unchanged_defaults,
)
from catalog.dispatch.pipeline import run_call
from catalog.errors import ParameterError
from catalog.schemas import compile_schema
from catalog.schemas.defaults import SchemaDefaults, paths_from_store
from catalog.testing import clean_registry, make_context
from catalog.tools import tool

BIG = 1917043659912705296


@pytest.fixture(autouse=True)
def _registry():
    with clean_registry():
        yield


class Payment(BaseModel):
    """One entry of a list."""

    to: str
    amount: float = 5000
    tags: list[str] = Field(default_factory=list)


class Options(BaseModel):
    """A nested object with a default."""

    limit: Annotated[int, Field(le=10)] = 5
    since: date = date(2026, 1, 1)


class Batch(BaseModel):
    """Parameters with defaults at every depth."""

    payments: list[Payment]
    by_name: dict[str, Payment] = {}
    options: Options = Options()
    note: str | None = None


@tool
def pay(params: Batch) -> Any:
    """Pay."""
    return [sorted(params.model_fields_set), [sorted(each.model_fields_set) for each in params.payments]]


def upstream(schema: dict[str, Any]) -> Tool[Any, Any]:
    """Return a tool whose handler passes the arguments on."""
    bound = Binding(schema)
    return Tool(name="up", description="Call.", handler=lambda arguments: arguments, bound=bound, fills_defaults=False)


def ran(made: Tool[Any, Any], arguments: dict[str, Any]) -> Any:
    return run_call(made, prepare_arguments(made, arguments), make_context()).returned


def test_defaults_are_filled_in_at_every_depth_and_not_counted_as_set():
    prepared = prepare_arguments(
        pay, {"payments": [{"to": "m"}, {"to": "n", "amount": 1}], "by_name": {"a": {"to": "x"}}}
    )

    assert prepared.passed == {
        "payments": [{"to": "m", "amount": 5000}, {"to": "n", "amount": 1}],
        "by_name": {"a": {"to": "x", "amount": 5000}},
        "options": {"limit": 5, "since": "2026-01-01"},
        "note": None,
    }
    assert set(prepared.defaults) == {("payments", 0, "amount"), ("by_name", "a", "amount"), ("options",), ("note",)}
    assert prepared.given == {"payments": [{"to": "m"}, {"to": "n", "amount": 1}], "by_name": {"a": {"to": "x"}}}
    assert run_call(pay, prepared, make_context()).returned == [["by_name", "payments"], [["to"], ["amount", "to"]]]


def test_default_is_a_copy():
    received = []

    @tool
    def collect(names: list[str] = ["a"]) -> list[str]:  # noqa: B006
        """Collect."""
        received.append(list(names))
        names.append("b")
        return names

    ran(collect, {})
    ran(collect, {})
    assert received == [["a"], ["a"]]


def never(text: str) -> str:
    raise ValueError("never")


def test_default_that_the_tool_refuses_is_judged_but_not_passed():
    @tool
    def find(
        name: str = None,  # type: ignore[assignment] # noqa: RUF013
        code: Annotated[str, AfterValidator(never)] = "x",
        limit: int = 3,
        day: date | None = None,
    ) -> list[Any]:
        """Find."""
        return [name, code, limit, day]

    prepared = prepare_arguments(find, {})
    assert (prepared.passed, prepared.given) == ({"limit": 3, "day": None}, {})
    assert prepared.forms == ({}, {"limit": 3, "day": None, "name": None, "code": "x"})
    assert ran(find, {}) == [None, "x", 3, None]


def test_required_argument_with_a_default_stays_required():
    made: Tool[Any, Any] = Tool(
        name="x",
        description="x",
        handler=lambda arguments: arguments,
        bound=Binding({"type": "object", "properties": {"a": {"default": 1}}, "required": ["a"]}),
    )
    with pytest.raises(ParameterError):
        prepare_arguments(made, {})


def test_query_without_parameters_gets_their_defaults():
    class Page(BaseModel):
        """Parameters of a query type; the schema hides the default of one."""

        size: int = 20
        key: SecretStr = SecretStr("hunter2")

    @tool(query_types={"list": Page})
    def listing(params: Page, query_type: str) -> list[Any]:
        """List."""
        return [params.size, params.key.get_secret_value(), sorted(params.model_fields_set)]

    prepared = prepare_arguments(listing, {"query_type": "list"})
    assert prepared.passed == {"query_type": "list", "parameters": {"size": 20}}
    assert prepared.given == {"query_type": "list"}
    assert ran(listing, {"query_type": "list"}) == [20, "hunter2", []]


class Cat(BaseModel):
    """One alternative."""

    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    """Another alternative."""

    kind: Literal["dog"]
    tricks: int = 1


def test_only_the_alternative_that_the_arguments_select_is_filled_in():
    @tool
    def adopt(pet: Cat | Dog) -> Any:
        """Adopt."""
        return pet.model_dump()

    assert prepare_arguments(adopt, {"pet": {"kind": "dog"}}).passed == {"pet": {"kind": "dog", "tricks": 1}}
    assert prepare_arguments(adopt, {"pet": {}}).passed == {"pet": {"kind": "cat", "lives": 9}}


class Card(BaseModel):
    """One of two alternatives that no constant tells apart."""

    network: Literal["visa", "master"]
    amount: float = 5000


class Transfer(BaseModel):
    """The other one."""

    network: Literal["sepa", "swift"]
    amount: float = 7000


def whole_thousands(limit: float) -> float:
    if limit % 1000:
        raise ValueError("whole thousands only")
    return limit


class Wire(BaseModel):
    """An alternative with a rule that its schema does not name."""

    limit: Annotated[float, AfterValidator(whole_thousands)]
    fee: float = 1


class Cash(BaseModel):
    """An alternative for integers."""

    limit: int
    fee: float = 2


def test_alternatives_are_told_apart_as_the_handler_does():
    @tool
    def settle(by: Card | Transfer, limits: list[Wire | Cash] = []) -> Any:  # noqa: B006
        """Settle."""
        return [by.amount, [each.fee for each in limits]]

    for network, amount in (("visa", 5000), ("swift", 7000)):
        prepared = prepare_arguments(settle, {"by": {"network": network}, "limits": [{"limit": 2000}]})
        assert prepared.passed["by"] == {"network": network, "amount": amount}
        assert ran(settle, prepared.given) == [amount, [1]]

    both = prepare_arguments(settle, {"by": {"network": "sepa"}, "limits": [{"limit": 3}]})
    assert both.passed["limits"] == [{"limit": 3}]
    assert [form["limits"][0].get("fee") for form in both.forms] == [None, 1, 2]
    assert ran(settle, both.given) == [7000, [2]]


def test_alternatives_may_refer_to_any_place_of_the_schema():
    schema = {
        "type": "object",
        "properties": {
            "any": {
                "anyOf": [{"properties": {"in": {"$ref": "#"}, "d": {"default": 1}}}, {"$ref": "#/properties/b%20c"}]
            },
            "b c": {"type": "object", "properties": {"in": {"type": "integer"}, "d": {"default": 2}}},
        },
        "additionalProperties": False,
    }
    for inner, defaults in (({}, [1]), (5, [2]), ({"x": 1}, [])):
        forms = SchemaDefaults(schema).all_fillings({"any": {"in": inner}})
        assert [form["any"]["d"] for form in forms if "d" in form["any"]] == defaults


def test_default_that_reaches_the_handler_differently_is_not_passed():
    @tool
    def sign_in(
        password: SecretStr = SecretStr("hunter2"),  # noqa: B008
        tries: Annotated[int, AfterValidator(lambda given: min(given, 3))] = 5,
        since: date = date(2026, 1, 1),
    ) -> Any:
        """Sign in."""
        return [password.get_secret_value(), tries, since]

    assert prepare_arguments(sign_in, {}).passed == {"since": "2026-01-01"}
    assert run_call(sign_in, prepare_arguments(sign_in, {}), make_context()).returned == [
        "hunter2",
        5,
        date(2026, 1, 1),
    ]

    class Login(BaseModel):
        """Parameters of a handler that takes a dict."""

        password: SecretStr = SecretStr("hunter2")
        tries: int = 3

    bound = CheckedBinding.of(Login, "log_in")
    log_in: Tool[Any, Any] = Tool(
        name="log_in", description="Log in.", handler=lambda arguments: arguments, bound=bound
    )
    assert ran(log_in, {}) == {"tries": 3}


def test_upstream_gets_what_was_given_and_rules_know_its_defaults():
    made = upstream({"type": "object", "properties": {"rows": {"items": {"properties": {"size": {"default": 100}}}}}})
    prepared = prepare_arguments(made, {"rows": [{}]})

    assert (prepared.passed, prepared.defaults) == ({"rows": [{}]}, ())
    assert prepared.forms == ({"rows": [{}]}, {"rows": [{"size": 100}]})


def test_hostile_number_of_defaults_is_refused():
    made = upstream(
        {"type": "object", "properties": {"rows": {"items": {"properties": {"x": {"default": "a" * 9000}}}}}}
    )
    for made.fills_defaults in (True, False):  # rules could not judge those of an upstream either
        with pytest.raises(ParameterError, match="With their defaults"):
            prepare_arguments(made, {"rows": [{}] * 1000})


NULLABLE = {
    "type": "object",
    "properties": {"assignee": {"type": "string"}, "note": {"type": ["string", "null"]}, "in": {"$ref": "#/$defs/in"}},
    "$defs": {"in": {"type": "object", "properties": {"size": {"type": "integer", "default": 7}}}},
}


def test_null_is_omitted_where_the_schema_excludes_it():
    given = {"assignee": None, "note": None, "in": {"size": None}}
    sent = prepare_arguments(upstream(NULLABLE), given)
    assert (sent.passed, sent.omitted) == ({"note": None, "in": {}}, ("assignee", "in.size"))

    @tool
    def assign(assignee: str = "ada", size: int = 7) -> list[Any]:
        """Assign."""
        return [assignee, size]

    filled = prepare_arguments(assign, {"assignee": None, "size": 1})
    assert (filled.passed, filled.omitted) == ({"assignee": "ada", "size": 1}, ())


@pytest.mark.parametrize("digits", [str(BIG), f"+000{BIG}", str(2**63), str(-(2**53))])
def test_large_integer_is_accepted_as_digits_and_passed_as_an_integer(digits):
    @tool
    def read(ids: list[int], text: str = "") -> list[str]:
        """Read."""
        return [str(each + 1) for each in ids]

    prepared = prepare_arguments(read, {"ids": [digits, 3], "text": digits})
    assert prepared.passed["ids"] == [int(digits), 3]
    assert prepared.storable == {"ids": [str(int(digits)), 3], "text": digits}
    assert prepare_arguments(read, prepared.storable).passed == prepared.passed
    assert prepare_arguments(read, {"ids": [int(digits)]}).storable["ids"] == [str(int(digits))]
    assert ran(read, {"ids": [digits]}) == [str(int(digits) + 1)]


@pytest.mark.parametrize("text", ["7", "9007199254740991", "1e30", "12345678901234567.5", "٣" * 20, "9" * 5000])
def test_other_texts_are_no_integers(text):
    made = upstream({"type": "object", "properties": {"id": {"type": "integer"}}})
    with pytest.raises(ParameterError):
        prepare_arguments(made, {"id": text})


def test_stored_arguments_have_the_same_forms():
    prepared = prepare_arguments(pay, {"payments": [{"to": "m"}]})
    text = canonical_text(prepared.storable)
    paths = paths_to_store(prepared, prepared.storable)
    again = stored_arguments(compile_schema(pay.input_schema), prepared.storable, paths)

    assert again.forms == prepared.forms
    assert set(paths_from_store(paths)) == set(prepared.defaults)
    edited = {**prepared.passed, "note": "new", "payments": [{"to": "q", "amount": 5000}]}
    assert without_unchanged_defaults(pay, edited, text, paths) == {"payments": [{"to": "q"}], "note": "new"}


def test_default_that_the_edited_arguments_would_not_get_counts_as_given():
    @tool
    def order(by: Card | Transfer) -> Any:
        """Order."""

    prepared = prepare_arguments(order, {"by": {"network": "visa"}})
    text, paths = canonical_text(prepared.storable), paths_to_store(prepared, prepared.storable)
    edited = {"by": {"network": "swift", "amount": 5000}}
    assert without_unchanged_defaults(order, edited, text, paths) == edited
    same_form = {"by": {"network": "master", "amount": 5000}}
    assert without_unchanged_defaults(order, same_form, text, paths) == {"by": {"network": "master"}}


def test_arguments_without_defaults_are_one_form():
    assert CallArguments({"a": 1}).forms == ({"a": 1},)
