"""An agent of Pydantic AI whose scripted model calls a gated tool: prints the runs and the results that it reads."""

import asyncio
import json
import sys
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from toolgate_client import AsyncClient
from toolgate_client.adapters.pydantic_ai import GatedTools


async def main(url: str, token: str, paths: list[str]) -> None:
    """Let the model delete one file after the other."""
    runs: list[str] = []
    read: list[str] = []

    def model(messages: list[Any], info: Any) -> ModelResponse:
        read.extend(str(part.content) for part in messages[-1].parts if part.part_kind == "tool-return")
        if not paths:
            return ModelResponse(parts=[TextPart("Done.")])
        return ModelResponse(parts=[ToolCallPart("delete_file", {"path": paths.pop(0)})])

    async with AsyncClient(url, token, session="pydantic-ai") as client:
        agent = Agent(FunctionModel(model), capabilities=[GatedTools(client)])

        @agent.tool_plain
        def delete_file(path: str) -> str:
            """Delete a file."""
            runs.append(path)
            return f"{path} is gone"

        await agent.run("Delete them.")
    json.dump({"runs": runs, "read": read}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
