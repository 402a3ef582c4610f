"""An agent of the OpenAI Agents SDK with a scripted model and a gated tool: prints runs, and results that it reads."""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from toolgate_client import AsyncClient
from toolgate_client.adapters.openai_agents import gated_tool


class ScriptedModel(Model):
    """Deletes one file after the other."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.read: list[str] = []

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        """Return the next call, or a closing text."""
        messages = options["input"] if "input" in options else arguments[1]
        last = messages[-1] if isinstance(messages, list) else {}
        if last.get("type") == "function_call_output":
            self.read.append(last["output"])
        output: Any
        if self.paths:
            path = json.dumps({"path": self.paths.pop(0)})
            output = ResponseFunctionToolCall(call_id=path, name="delete_file", arguments=path, type="function_call")
        else:
            text = ResponseOutputText(text="Done.", type="output_text", annotations=[])
            output = ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[text])
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **options: Any) -> Any:
        """Refuse, since the agent runs without streaming."""
        raise RuntimeError("This model does not stream.")


async def main(url: str, token: str, paths: list[str]) -> None:
    """Run the agent."""
    runs: list[str] = []

    @function_tool
    def delete_file(path: str) -> str:
        """Delete a file."""
        runs.append(path)
        return f"{path} is gone"

    model = ScriptedModel(paths)
    async with AsyncClient(url, token, session="openai-agents") as client:
        agent = Agent(name="cleaner", model=model, tools=[gated_tool(delete_file, client)])
        await Runner.run(agent, "Delete them.", run_config=RunConfig(tracing_disabled=True))
    json.dump({"runs": runs, "read": model.read}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
