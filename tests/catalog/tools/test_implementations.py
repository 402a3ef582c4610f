"""Further implementations of a tool: accepted if their types match the contract."""

import pytest
from pydantic import BaseModel

from catalog.errors import ToolDefinitionError
from catalog.testing import clean_registry, invoke, make_context
from catalog.tools import Preview, define_tool, register_implementation, register_tool, tool
from catalog.tools.registry import loaded_variants


class Greeting(BaseModel):
    """Whom to greet."""

    name: str


class OtherGreeting(BaseModel):
    """Whom to greet."""

    name: str


@pytest.fixture(autouse=True)
def greet():
    """One tool with one handler."""
    with clean_registry():

        @tool(categories=["words"])
        def greet(name: str, loud: bool = False) -> str:
            """Greet someone."""
            return f"Hello {name}"

        yield greet


def warmly(name: str, loud: bool = False) -> str:
    return f"Dear {name}"


async def later(name: str, loud: bool = False):
    return f"Good evening, {name}"


def test_other_code_serves_the_tool_under_the_same_contract(greet):
    register_implementation("greet", warmly)
    register_implementation("greet", later, reference="evening")

    own, *others = loaded_variants(greet).values()

    assert list(loaded_variants(greet)) == [greet.reference, f"{__name__}:warmly", "evening"]
    assert own is greet
    assert [invoke(each, {"name": "Ada"}).value for each in others] == ["Dear Ada", "Good evening, Ada"]
    assert [each.is_async for each in (own, *others)] == [False, False, True]
    assert {each.fingerprint for each in (own, *others)} == {greet.fingerprint}
    assert len({each.digest for each in (own, *others)}) == 3


def test_other_code_may_take_one_dict_where_the_tool_does():
    note = register_tool(define_tool("note", "Note.", [{"name": "text", "type": "string"}], handler=lambda args: 1))
    register_implementation("note", lambda arguments: arguments["text"], reference="echo")

    assert list(loaded_variants(note))[1:] == ["echo"]


def test_other_code_takes_the_same_model(greet):
    @tool
    def typed(params: Greeting) -> str:
        """Greet."""
        return params.name

    def same(params: Greeting) -> str:
        return params.name[::-1]

    register_implementation("typed", same)

    assert invoke(list(loaded_variants(typed).values())[1], {"name": "Ada"}).value == "adA"


def test_other_code_of_a_tool_with_query_types_takes_what_the_tool_offers():
    @tool(query_types={"greet": Greeting})
    def ask(params: Greeting, query_type: str) -> list[str]:
        """Ask."""
        return [query_type, params.name]

    register_implementation("ask", lambda params: [params.name], reference="short")
    with pytest.raises(ToolDefinitionError, match="ask"):
        register_implementation("ask", lambda params, speed: [], reference="wrong")

    code = loaded_variants(ask)["short"]
    assert invoke(code, {"query_type": "greet", "parameters": {"name": "Ada"}}).value == ["Ada"]


def no_name(loud: bool = False) -> str:
    return "Hello"


def other_default(name: str, loud: bool = True) -> str:
    return "Hello"


def other_type(name: int, loud: bool = False) -> str:
    return "Hello"


def other_result(name: str, loud: bool = False) -> int:
    return 1


def other_model(params: OtherGreeting) -> str:
    return "Hello"


@pytest.mark.parametrize("handler", [no_name, other_default, other_type, other_result, other_model, 5])
def test_code_that_does_not_fit_is_refused_by_name(handler):
    with pytest.raises(ToolDefinitionError, match="greet"):
        register_implementation("greet", handler)


@pytest.mark.parametrize("reference", ["with space", "ü", "x" * 256, "line\nbreak"])
def test_a_reference_that_could_not_be_kept_or_read_is_refused(reference):
    with pytest.raises(ToolDefinitionError, match="visible ASCII"):
        register_implementation("greet", warmly, reference=reference)


def test_the_handler_itself_is_no_other_code(greet):
    with pytest.raises(ToolDefinitionError, match="greet"):
        register_implementation("greet", greet.handler)


def test_a_tool_that_does_not_exist_cannot_be_implemented():
    with pytest.raises(ToolDefinitionError, match="gret"):
        register_implementation("gret", warmly)


def test_registering_it_again_replaces_it(greet):
    register_implementation("greet", warmly, reference="other")
    register_implementation("greet", later, reference="other")

    assert loaded_variants(greet)["other"].handler is later


def test_the_tool_shows_what_a_call_would_do_unless_the_code_has_its_own_preview(greet):
    greet.preview(lambda name, loud=False: Preview(summary="ours", kind="text"))
    register_implementation("greet", later, reference="plain")
    own = register_implementation("greet", warmly)
    own.preview(lambda name, loud=False: Preview(summary="theirs", kind="text"))

    shown = [each.preview_for({"name": "Ada"}, make_context()) for each in loaded_variants(greet).values()]

    assert [each.summary for each in shown if each] == ["ours", "ours", "theirs"]
