"""LangChain: `create_agent(…, middleware=[GatedTools(Client())])` asks Toolgate before each of the agent's tools."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage

from toolgate_client import AsyncClient, Client, NotAllowed, RunReport


class GatedTools(AgentMiddleware):
    """Middleware: every tool runs when Toolgate allows it. `invoke` needs a Client, `ainvoke` an AsyncClient."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return self._run(Client, request, handler)
        except NotAllowed as refusal:
            return ToolMessage(refusal.message, tool_call_id=request.tool_call["id"], status="error")

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await self._run(AsyncClient, request, handler)
        except NotAllowed as refusal:
            return ToolMessage(refusal.message, tool_call_id=request.tool_call["id"], status="error")

    def _run(self, client_class: type[Client | AsyncClient], request: Any, handler: Any) -> Any:
        if not isinstance(self.client, client_class):
            raise TypeError(f"An agent that is run like this needs GatedTools with a {client_class.__name__}.")
        call = request.tool_call
        act = lambda approved: handler(request.override(tool_call={**call, "args": approved}))  # noqa: E731
        return self.client.run(call["name"], call["args"], act, report_of=_report)


def _report(message: Any) -> RunReport:
    return RunReport(getattr(message, "status", "") != "error", getattr(message, "content", None))
