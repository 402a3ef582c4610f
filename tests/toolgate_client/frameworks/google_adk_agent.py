"""An agent of Google's ADK with a scripted model and a gated tool: prints the runs and the results that it reads."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from toolgate_client import AsyncClient
from toolgate_client.adapters.google_adk import gated_tool


class ScriptedModel(BaseLlm):
    """Deletes one file after the other."""

    paths: list[str]
    read: list[str]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next call, or a closing text."""
        for part in llm_request.contents[-1].parts or []:
            if part.function_response:
                found = part.function_response.response or {}
                self.read.append(str(found.get("result", found.get("error"))))
        if self.paths:
            part = types.Part.from_function_call(name="delete_file", args={"path": self.paths.pop(0)})
        else:
            part = types.Part.from_text(text="Done.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main(url: str, token: str, paths: list[str]) -> None:
    """Run the agent."""
    runs: list[str] = []

    def delete_file(path: str) -> str:
        """Delete a file."""
        runs.append(path)
        return f"{path} is gone"

    model = ScriptedModel(model="scripted", paths=paths, read=[])
    async with AsyncClient(url, token, session="google-adk") as client:
        agent: Any = LlmAgent(name="cleaner", model=model, tools=[gated_tool(delete_file, client)])
        await InMemoryRunner(agent).run_debug("Delete them.", quiet=True)
    json.dump({"runs": runs, "read": model.read}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
