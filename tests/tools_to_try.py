"""A tool whose form has one of everything, a dangerous one and a slow one: what people try on a tool's page."""

import asyncio
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from catalog.testing import clean_registry
from catalog.tools import Preview, ToolContext, ToolExample, tool


class Point(BaseModel):
    """A place by numbers."""

    kind: Literal["point"] = "point"
    x: float
    y: float = 0.0


class Town(BaseModel):
    """A place by name."""

    kind: Literal["town"] = "town"
    name: Annotated[str, Field(min_length=2)]


class Stop(BaseModel):
    """One stop of a trip."""

    place: Annotated[Point | Town, Field(discriminator="kind")]
    nights: Annotated[int, Field(ge=0, le=30, description="How many nights to stay.")] = 1
    notes: list[str] = []


class Trip(BaseModel):
    """A journey with stops."""

    title: Annotated[str, Field(max_length=80)]
    stops: Annotated[list[Stop], Field(min_length=1)]
    pace: Literal["slow", "fast"] = "slow"
    budget: float | None = None
    by_train: bool = False
    labels: dict[str, int] = {}
    span: tuple[int, str] | None = None
    when: str | int = ""
    remark: str = ""
    anything: Any = None


with clean_registry():

    @tool(examples=[ToolExample("Two nights in Bonn", Trip(title="Rhine", stops=[Stop(place=Town(name="Bonn"))]), 1)])
    def plan_trip(params: Trip) -> int:
        """Count the nights of a trip."""
        return sum(stop.nights for stop in params.stops)

    @tool
    async def wait_for_train(seconds: float) -> str:
        """Wait, and say that it came."""
        await asyncio.sleep(seconds)
        return "It came."

    @tool(safety_level="dangerous", reversibility="restorable")
    def book_trip(title: str, *, context: ToolContext) -> str:
        """Book a trip."""
        return f"Booked {title}"

    @book_trip.preview
    def _(title: str, *, context: ToolContext) -> Preview:
        return Preview(f"Book {title}", "text", after=None if title == "Nowhere" else f"A booking of {title}")


TOOLS = (plan_trip, wait_for_train, book_trip)
