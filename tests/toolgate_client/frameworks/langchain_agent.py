"""An agent of LangChain whose scripted model calls a gated tool: prints the runs and the results that it reads."""

import asyncio
import json
import sys
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage

from toolgate_client import AsyncClient, Client
from toolgate_client.adapters.langchain import GatedTools


class ScriptedModel(FakeMessagesListChatModel):
    """LangChain's fake model, which takes tools."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """Take the tools."""
        return self


def main(url: str, token: str, paths: list[str]) -> None:
    """Let the model delete the first file in an agent that is not awaited, and the others in one that is."""
    runs: list[str] = []

    @tool
    def delete_file(path: str) -> str:
        """Delete a file."""
        runs.append(path)
        return f"{path} is gone"

    def agent(client: Client | AsyncClient, *paths: str) -> Any:
        calls = [{"name": "delete_file", "args": {"path": path}, "id": path} for path in paths]
        turns = [AIMessage("", tool_calls=[call]) for call in calls]
        model = ScriptedModel(responses=[*turns, AIMessage("Done.")])
        return create_agent(model, [delete_file], middleware=[GatedTools(client)])

    async def awaited() -> Any:
        async with AsyncClient(url, token, session="langchain") as client:
            return await agent(client, *paths[1:]).ainvoke(question)

    question = {"messages": [{"role": "user", "content": "Delete them."}]}
    with Client(url, token, session="langchain") as client:
        first = agent(client, paths[0]).invoke(question)
    messages = first["messages"] + asyncio.run(awaited())["messages"]
    read = [message.content for message in messages if isinstance(message, ToolMessage)]
    json.dump({"runs": runs, "read": read}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
