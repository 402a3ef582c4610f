"""Held calls as tasks, for clients that declare the extension."""

from typing import Any

import httpx2
import pytest

from catalog.access.tokens import create_token
from catalog.models import Call
from plans.models import Plan
from tests.builders import approve, reject
from tests.plans.mcp.conftest import ACCEPT
from tests.plans.socket_clients import apart

pytestmark = pytest.mark.django_db(transaction=True)

VERSION = "2026-07-28"
EXTENSION = "io.modelcontextprotocol/tasks"


class TaskClient:
    """A client of version 2026-07-28 that declares the extension in each request, or leaves it out."""

    def __init__(self, url: str, token: str, http: httpx2.AsyncClient) -> None:
        self.url, self.token, self.http = url, token, http

    async def ask(self, method: str, *, declares: bool = True, **params: Any) -> dict[str, Any]:
        """Send one request; return its result, or its error under `error`."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}} if declares else {},
        }
        headers = {**ACCEPT, "authorization": f"Bearer {self.token}", "mcp-protocol-version": VERSION}
        headers["mcp-method"] = method
        if "name" in params:
            headers["mcp-name"] = params["name"]
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        answer: dict[str, Any] = (await self.http.post(self.url, headers=headers, json=body)).json()
        return answer.get("result") or answer

    async def write(self) -> str:
        """Make a call that is held; return the id of its task."""
        task = await self.ask("tools/call", name="write_file", arguments={"path": "a.txt", "content": "x"})
        assert (task["resultType"], task["status"]) == ("task", "working")
        return str(task["taskId"])

    async def until_over(self, task_id: str) -> dict[str, Any]:
        """Ask for a task until it is over; return it."""
        while True:
            task = await self.ask("tasks/get", taskId=task_id)
            if task["status"] != "working":
                return task


async def test_tasks_end_with_the_result_the_reason_or_their_cancellation(
    mcp_url: str, ada: Any, rosa: Any, ben: Any, workspace: Any
) -> None:
    async with httpx2.AsyncClient(timeout=60) as http:
        mine, others = [
            TaskClient(mcp_url, (await apart(create_token, user=user, kind="agent", scopes=["calls:create"]))[1], http)
            for user in (ada, ben)
        ]
        rejected = await mine.write()
        assert (await others.ask("tasks/get", taskId=rejected))["error"]["code"] == -32602
        reads = await apart(create_token, user=ada, kind="agent", scopes=["tools:read"])
        refused = await TaskClient(mcp_url, reads[1], http).ask("tasks/get", taskId=rejected)
        assert (refused["error"]["code"], "calls:create" in refused["error"]["message"]) == (-32602, True)
        assert "extension" in (await mine.ask("tasks/get", declares=False, taskId=rejected))["error"]["message"]
        await apart(lambda: reject(Plan.objects.latest("pk"), rosa))
        task = await mine.until_over(rejected)
        assert task["status"] == "failed" and task["error"]["message"]

        cancelled = await mine.write()
        await mine.ask("tasks/cancel", taskId=cancelled)
        assert (await mine.until_over(cancelled))["status"] == "cancelled"
        assert not (workspace / "a.txt").exists()

        approved = await mine.write()
        await apart(lambda: approve(Plan.objects.latest("pk"), rosa))
        task = await mine.until_over(approved)
        assert (task["status"], task["result"]["isError"]) == ("completed", False)
        await mine.ask("tasks/cancel", taskId=approved)
    assert (workspace / "a.txt").read_text() == "x"
    assert await apart(lambda: set(Call.objects.values_list("status", flat=True))) == {
        "failed",
        "cancelled",
        "completed",
    }
