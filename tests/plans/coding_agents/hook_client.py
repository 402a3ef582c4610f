"""A client that sends its hooks over REST."""

import json
from typing import Any

from catalog.models import ClientRun
from tests.plans.coding_agents.conftest import CodingAgent, answer_request
from tests.plans.coding_agents.recorded import HOOK_FORMATS, decision_in, recorded
from tests.rest import Rest

BEFORE = recorded("claude-code_PreToolUse_Bash")
AFTER = recorded("claude-code_PostToolUse_Bash")
NO_WAIT = "?wait_seconds=0"


class Hooks:
    """A client that sends its hooks with a token of its own."""

    def __init__(self, agent: CodingAgent, *scopes: str) -> None:
        self.rest = Rest(agent.user, *(scopes or ("permissions:ask",)), kind="agent")
        self.agent = CodingAgent(agent.user, self.rest.token, BEFORE["session_id"])

    def send(
        self, body: Any = None, client: str = "claude-code", query: str = "?wait_seconds=0", **changes: Any
    ) -> Any:
        """Send a body with changes, and return the response."""
        text = body if isinstance(body, bytes) else json.dumps({**(BEFORE if body is None else body), **changes})
        return self.rest.post(f"hooks/{client}/{query}", text)

    def decision(self, body: Any = None, client: str = "claude-code", **more: Any) -> tuple[str, Any, str | None]:
        response = self.send(body, client, **more)
        assert response.status_code == 200, response.content
        return decision_in(HOOK_FORMATS[client], response.json())

    def last_run(self) -> ClientRun:
        return ClientRun.objects.select_related("call__approval").latest("pk")

    def approve(self, rosa: Any, **more: Any) -> None:
        run = self.last_run()
        question = self.agent.ask(call_id=run.client_call_id, input=BEFORE["tool_input"], cwd=run.cwd)
        answer_request(question, rosa, **more)
