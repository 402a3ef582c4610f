"""One tool in each way of declaring. Put this folder on PYTHONPATH and name `every_style` in TOOLGATE_TOOLS.

Whatever the way in, each is checked, gated, run and recorded alike; its result is one standard response.
"""

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from catalog.gram import create_tool_specification
from catalog.library import ToolLibrary, create_tool
from catalog.tools import (
    BaseTool,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
    ToolSpec,
    define_tool,
    register_tool,
    tool,
)

# --- a function ----------------------------------------------------------------------------------------------


@tool(categories=["examples"], retry_safe=True)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


# --- a typed tool in parts, with an example that is checked when it is made ----------------------------------


@dataclass(frozen=True)
class LookupParams:
    """The word to look up."""

    entity_id: str = field(metadata={"description": "ID to fetch"})


@dataclass(frozen=True)
class LookupResult:
    """The place of a word."""

    entity_id: str
    url: str


def look_up(params: LookupParams, *, context: ToolContext) -> ToolResult[LookupResult]:
    """Say where an entity is described."""
    found = LookupResult(params.entity_id, f"https://example.org/{params.entity_id}")
    return ToolResult.ok(found, message=f"Fetched {params.entity_id}")


lookup_entity = register_tool(
    Tool[LookupParams, LookupResult](
        name="lookup_entity",
        description="Fetch information for an entity ID.",
        handler=look_up,
        categories=("examples",),
        examples=(
            ToolExample(
                "Basic lookup",
                LookupParams(entity_id="abc-123"),
                LookupResult(entity_id="abc-123", url="https://example.org/abc-123"),
            ),
        ),
    )
)


# --- a class -------------------------------------------------------------------------------------------------


class OpeningHours(BaseTool):
    """Say when a place is open."""

    name = "opening_hours"
    description = "Say when a room of the conference is open."
    parameters = {  # noqa: RUF012 - a JSON Schema, or a pydantic model; without one any object is taken
        "type": "object",
        "properties": {"room": {"type": "string", "description": "The room's name", "maxLength": 40}},
        "required": ["room"],
    }
    requires_identifier = True
    categories = ("examples",)

    async def execute(self, args: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Answer with data, and with a sentence for the user."""
        hours = {"room": args["room"], "opens": "09:00", "closes": "18:00"}
        return {"success": True, "data": hours, "user_message": f"{args['room']} is open from nine to six."}


opening_hours = register_tool(OpeningHours())


# --- a list of parameters ------------------------------------------------------------------------------------


def shout(arguments: dict[str, Any]) -> str:
    """Repeat a text in capitals."""
    return str(arguments["text"]).upper() + "!" * int(arguments.get("marks", 1))


shout_text = register_tool(
    define_tool(
        "shout_text",
        "Repeat a text in capital letters.",
        [
            {"name": "text", "type": "string", "description": "What to repeat"},
            {"name": "marks", "type": "integer", "description": "How many exclamation marks", "enum": [0, 1, 2, 3]},
        ],
        required=["text"],
        categories=["examples"],
        handler=shout,
    )
)


# --- query types ---------------------------------------------------------------------------------------------


class CircleParams(BaseModel):
    """A circle."""

    radius: float = Field(gt=0, le=1e6)


class RectangleParams(BaseModel):
    """A rectangle."""

    width: float = Field(gt=0, le=1e6)
    height: float = Field(gt=0, le=1e6)


SHAPES = ToolSpec(
    name="area_of",
    description="Compute the area of a shape.",
    input_schema={"circle": CircleParams, "rectangle": RectangleParams},
    output_key="area",
)


@tool(spec=SHAPES, categories=["examples"], retry_safe=True)
def area_of(params: CircleParams | RectangleParams, query_type: str) -> dict[str, Any]:
    """Answer each query type with one number; what stands beside `results` joins the response."""
    if isinstance(params, CircleParams):
        return {"results": [3.141592653589793 * params.radius**2], "shape": query_type}
    return {"results": [params.width * params.height], "shape": query_type}


# --- a specification in gram, bound to an implementation of a library ----------------------------------------

REPEAT = create_tool_specification(
    "repeat_text",
    "Repeat a text several times.",
    "(text::Text)==>(times::Int {default:2})==>(::String)",
)
LIBRARY = ToolLibrary().register(
    REPEAT.name,
    create_tool(
        REPEAT.name,
        REPEAT.description,
        REPEAT.schema,
        lambda arguments: arguments["text"] * min(arguments.get("times", 2), 100),
        categories=["examples"],
    ),
)
(repeat_text,) = (register_tool(bound) for bound in LIBRARY.bind_all([REPEAT]))
