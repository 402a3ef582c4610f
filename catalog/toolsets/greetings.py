"""Greeting someone: one specification in gram, served by two implementations, of which a weight chooses one."""

from typing import Any

from catalog.gram import create_tool_specification
from catalog.library import ToolLibrary, create_tool
from catalog.tools import register_tool
from catalog.tools.registry import register_implementation

SAY_HELLO = create_tool_specification(
    "say_hello",
    "Returns a friendly greeting message for the given name",
    '(::Text {paramName:"name"})==>(::String)',
)


def plain_greeting(arguments: dict[str, Any]) -> str:
    """Greet in one sentence."""
    return f"Hello, {arguments['name']}!"


def warm_greeting(arguments: dict[str, Any]) -> str:
    """Greet as one greets someone one is glad to meet."""
    return f"Hello, {arguments['name']}! Nice to meet you."


GREETINGS = ToolLibrary().register(
    SAY_HELLO.name,
    create_tool(SAY_HELLO.name, SAY_HELLO.description, SAY_HELLO.schema, plain_greeting, categories=["text"]),
)

(say_hello,) = GREETINGS.bind_all([SAY_HELLO])
register_tool(say_hello)
say_hello_warmly = register_implementation(SAY_HELLO.name, warm_greeting)
