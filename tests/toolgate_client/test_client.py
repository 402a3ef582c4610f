"""Calls, waits, approvals, plans and events, with both clients."""

from typing import Any, assert_type

import httpx
import pytest

from tests.toolgate_client.conftest import CALL, TOKEN
from toolgate_client import AsyncClient, Call, Client, ConfigurationError

APPROVAL = {"id": "apr_1", "status": "pending", "tool": "t", "digest": "d", "arguments": {}, "may_decide": True}
PLAN = {"id": "plan_1", "goal": "g", "status": "completed", "last_seq": 2, "steps": []}


def answer(body: Any) -> httpx.Response:
    return httpx.Response(200, json=body)


def call(**fields: Any) -> httpx.Response:
    return answer({**CALL, "result": None, **fields})


def test_call_waits_until_the_call_has_ended(toolgate, script, outcome):
    approval = {"id": "apr_1", "url": "https://toolgate.example/approvals/?item=apr_1", "expires_at": None}
    script.replies = [
        call(status="waiting", waiting_for="approval", approval=approval),
        call(status="running", id="call_2"),
        answer({**CALL, "id": "call_2"}),
    ]
    found = outcome(toolgate.call("write_file", {"path": "a"}, reason="To try it"))
    assert (found.id, found.succeeded, found.results) == ("call_2", True, ["x"])
    assert script.paths() == ["POST calls/", "GET calls/call_1/", "GET calls/call_2/"]
    sent = {"tool": "write_file", "arguments": {"path": "a"}, "wait_seconds": 50.0, "reason": "To try it"}
    assert (script.bodies(), script.requests[0].headers["toolgate-session"]) == ([sent], "s1")
    assert script.requests[1].url.params["wait_seconds"] == "50.0"


def test_call_returns_a_waiting_call_when_the_time_is_over(toolgate, script, outcome):
    script.replies = [call(status="waiting"), call(status="waiting")]
    found = outcome(toolgate.call("write_file", {}, wait_seconds=0, idempotency_key="mine"))
    assert (found.has_ended, found.results, script.requests[0].headers["idempotency-key"]) == (False, None, "mine")


def test_wait_follows_the_call_that_replaced_one(toolgate, script, outcome):
    script.replies = [call(status="cancelled", replaced_by="call_2"), answer({**CALL, "id": "call_2"})]
    assert outcome(toolgate.wait("call_1")).id == "call_2"


def test_approvals_are_read_page_by_page_from_one_address(toolgate, script, outcome):
    elsewhere = "https://elsewhere.example/api/v1/approvals/?cursor=abc%3D"
    script.replies = [answer({"next": elsewhere, "results": [APPROVAL]}), answer({"next": None, "results": [APPROVAL]})]
    assert len(outcome(toolgate.approvals(status="pending"))) == 2
    assert {request.url.host for request in script.requests} == {"toolgate.example"}
    assert dict(script.requests[1].url.params) == {"status": "pending", "page_size": "199", "cursor": "abc="}


def test_a_review_names_the_digest_that_was_read(toolgate, script, outcome):
    script.replies = [answer(APPROVAL), answer({**APPROVAL, "status": "approved"})]
    outcome(toolgate.review(outcome(toolgate.approval("apr_1")), "approve", arguments={"path": "b"}))
    assert script.bodies() == [{"verdict": "approve", "seen_digest": "d", "comment": "", "arguments": {"path": "b"}}]


def events_of(toolgate: Client | AsyncClient, after: int) -> Any:
    async def listed() -> list[int]:
        assert isinstance(toolgate, AsyncClient)
        return [event.seq async for event in toolgate.events("plan_1", after=after)]

    return [event.seq for event in toolgate.events("plan_1", after=after)] if isinstance(toolgate, Client) else listed()


def page(*events: tuple[int, str]) -> httpx.Response:
    fields: dict[str, Any] = {"at": "2026-11-28T00:00:00Z", "step_id": None, "data": {}}
    return answer({"next": None, "results": [{"seq": seq, "type": kind, **fields} for seq, kind in events]})


def test_events_are_followed_to_the_end_of_the_plan(toolgate, script, outcome):
    running = answer({**PLAN, "status": "in_progress"})
    script.replies = [page((1, "plan.created")), page(), running, page(), page((2, "plan.completed"))]
    assert outcome(events_of(toolgate, 0)) == [1, 2]
    assert [request.url.params.get("after") for request in script.requests] == ["0", "1", None, "1", "1"]


def test_events_of_an_ended_plan_end(toolgate, script, outcome):
    script.replies = [page(), answer(PLAN)]
    assert outcome(events_of(toolgate, 2)) == []


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("", TOKEN), {}),
        (("ftp://toolgate.example", TOKEN), {}),
        (("https://ada:secret@toolgate.example", TOKEN), {}),
        (("https://[toolgate", TOKEN), {}),
        (("https://toolgate.example", ""), {}),
        (("https://toolgate.example", "tg_a\r\nX: y"), {}),
        (("https://toolgate.example", TOKEN), {"session": "a/b"}),
        (("https://toolgate.example", TOKEN), {"name": "Claude Code"}),
    ],
)
def test_a_wrong_configuration_is_refused(arguments, options, monkeypatch):
    for name in ("TOOLGATE_URL", "TOOLGATE_TOKEN", "TOOLGATE_SESSION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError) as raised:
        Client(*arguments, **options)
    assert "secret" not in str(raised.value)


def test_address_and_token_come_from_the_environment(monkeypatch):
    for name, value in (("URL", "https://toolgate.example/"), ("TOKEN", TOKEN), ("SESSION", "s2")):
        monkeypatch.setenv(f"TOOLGATE_{name}", value)
    client = Client()
    assert (client.url, client.session, TOKEN in repr(client)) == ("https://toolgate.example", "s2", False)


async def check_types(client: Client, async_client: AsyncClient) -> None:
    """Let mypy compare the types of a method that is written once."""
    assert_type(client.wait("call_1"), Call)
    assert_type(await async_client.wait("call_1", wait_seconds=1), Call)
