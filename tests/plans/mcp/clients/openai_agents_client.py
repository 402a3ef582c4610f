"""Call the tools of an MCP server with an agent of the OpenAI Agents SDK and a scripted model; print the outcomes.

Runs in an environment of its own, from `openai_agents.lock`: the SDK needs an older `websockets` than Toolgate.
"""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.mcp import MCPServerStreamableHttp
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

Calls = list[tuple[str, dict[str, Any]]]


class ScriptedModel(Model):
    """Makes the calls one after the other; asks for the outcome of one that is pending."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.offered: list[str] = []
        self.outcomes: list[str] = []
        self.made = 0

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        """Return the next call, or a closing text."""
        if len(arguments) > 1:
            options |= dict(zip(("system_instructions", "input", "model_settings", "tools"), arguments, strict=False))
        self.offered = sorted(tool.name for tool in options["tools"])
        messages = options["input"]
        last = messages[-1] if isinstance(messages, list) else {}
        if last.get("type") == "function_call_output":
            text = last["output"] if isinstance(last["output"], str) else json.dumps(last["output"])
            pending = approval_in(text)
            if pending:
                return self.call("approval_result", {"approval_id": pending, "wait_seconds": 4})
            self.outcomes.append(text)
        if self.calls:
            return self.call(*self.calls.pop(0))
        text = ResponseOutputText(text="Done.", type="output_text", annotations=[])
        message = ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[text])
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def call(self, name: str, arguments: dict[str, Any]) -> ModelResponse:
        """Return the call of a tool."""
        self.made += 1
        call = ResponseFunctionToolCall(
            call_id=f"call_{self.made}", name=name, arguments=json.dumps(arguments), type="function_call"
        )
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **options: Any) -> Any:
        """Refuse, since the agent runs without streaming."""
        raise RuntimeError("This model does not stream.")


def approval_in(text: str) -> str | None:
    """Return the approval's id in a pending result."""
    if "pending_approval" not in text:
        return None
    return "apr_" + text.split("apr_", 1)[1].split('"', 1)[0].rstrip("\\")


async def main(url: str, token: str, calls: Calls) -> None:
    """Run an agent with the server's tools."""
    model = ScriptedModel(calls)
    params = {"url": url, "headers": {"Authorization": f"Bearer {token}"}, "timeout": 30}
    async with MCPServerStreamableHttp(params=params, client_session_timeout_seconds=30) as server:  # type: ignore[arg-type]
        agent = Agent(name="writer", model=model, mcp_servers=[server])
        await Runner.run(agent, "Write it.", max_turns=50, run_config=RunConfig(tracing_disabled=True))
    json.dump({"listed": model.offered, "outcomes": model.outcomes}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
