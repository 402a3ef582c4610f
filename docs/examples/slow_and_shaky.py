"""Two tools for the example plans. Put this folder on PYTHONPATH and name `slow_and_shaky` in TOOLGATE_TOOLS."""

import asyncio
from typing import Annotated

from pydantic import Field

from catalog.tools import ToolContext, tool


@tool(categories=["examples"], retry_safe=True)
def fetch_shakily(name: str, *, context: ToolContext) -> str:
    """Fetch a thing over a line that is always busy the first time."""
    if context.attempt == 1:
        raise ConnectionError("The line was busy.")
    return f"{name}, fetched at try {context.attempt}"


@tool(categories=["examples"], retry_safe=True)
async def take_time(label: str, seconds: Annotated[float, Field(ge=0, le=20)] = 1.0) -> str:
    """Take a while, then answer with the label. It can be stopped at any moment."""
    await asyncio.sleep(seconds)
    return label
