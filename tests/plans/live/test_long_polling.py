"""The long-polling middleware: answers are held while a call runs; other responses pass through."""

import asyncio

import pytest

from plans.live import long_polling, waits
from plans.live.long_polling import WaitForCall
from plans.live.waits import end_waits

POST = {
    "type": "http",
    "method": "POST",
    "path": "/api/v1/calls/",
    "raw_path": b"/api/v1/calls/",
    "query_string": b"a=1",
    "root_path": "",
    "headers": [(b"authorization", b"Bearer tg_x"), (b"idempotency-key", b"k"), (b"content-length", b"2")],
}


class Inner:
    """An application that requests a wait for POST, and answers GET with the result."""

    def __init__(self, wait=b"call_1;5.0", status=200):
        self.wait, self.status, self.scopes = wait, status, []

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        reads = scope["method"] == "GET"
        headers = [(b"content-type", b"application/json")]
        if self.wait and not reads:
            headers.append((b"Toolgate-Wait", self.wait))
        status = self.status if reads else 201
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"later" if reads else b"at once"})


async def ask(inner, settled, receive=None, scope=POST):
    """Send one request through the middleware; return the messages it sent."""
    sent = []

    async def stays():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await WaitForCall(inner, settled)(scope, receive or stays, send)
    return sent


async def settle_at_once(call_id, seconds):
    """Treat every call as ended."""
    return call_id


async def test_answer_is_the_call_after_the_wait_with_the_first_status():
    waited = []

    async def settled(call_id, seconds):
        waited.append((call_id, seconds))
        return call_id

    start, body = await ask(Inner(), settled)

    assert waited == [("call_1", 5.0)]
    assert (start["status"], body["body"]) == (201, b"later")
    assert start["headers"] == [(b"content-type", b"application/json")]


async def test_the_call_is_read_as_the_same_caller():
    inner = Inner()
    await ask(inner, settle_at_once)

    read = inner.scopes[1]
    assert (read["method"], read["path"], read["query_string"]) == ("GET", "/api/v1/calls/call_1/", b"")
    assert read["headers"] == [(b"authorization", b"Bearer tg_x")]


async def test_response_without_a_wait_passes_through():
    start, body = await ask(Inner(wait=None), None)

    assert (start["status"], body["body"]) == (201, b"at once")


async def test_unreadable_call_is_answered_with_the_first_answer():
    start, body = await ask(Inner(status=404), settle_at_once)

    assert (start["status"], body["body"]) == (201, b"at once")
    assert start["headers"] == [(b"content-type", b"application/json")]


async def test_a_client_that_leaves_ends_the_wait():
    ended = asyncio.Event()

    async def settled(call_id, seconds):
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    async def leaves():
        return {"type": "http.disconnect"}

    assert await ask(Inner(), settled, receive=leaves) == []
    await asyncio.wait_for(ended.wait(), 60)


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_other_protocols_pass_through(kind):
    passed = []

    async def inner(scope, receive, send):
        passed.append(scope["type"])

    await ask(inner, None, scope={"type": kind})

    assert passed == [kind]


@pytest.mark.parametrize(("status", "body"), [(200, b"later"), (502, b"later"), (429, b"later")])
async def test_draft_is_answered_with_any_outcome(status, body):
    inner = Inner(wait=b"call_1;5.0;draft", status=status)
    start, sent = await ask(inner, settle_at_once)
    assert inner.scopes[1]["path"] == "/api/v1/plans/draft/call_1/"
    assert (start["status"], sent["body"]) == (201 if status == 200 else status, body)


@pytest.mark.parametrize("status", [403, 404])
async def test_unreadable_draft_is_answered_with_the_first_answer(status):
    start, body = await ask(Inner(b"call_1;5.0;draft", status=status), settle_at_once)
    assert (start["status"], body["body"]) == (201, b"at once")


async def never(call_id, seconds):
    """Treat every call as running."""
    await asyncio.Event().wait()


async def test_stopping_process_answers_with_the_known_state():
    """With the current call."""
    asking = asyncio.ensure_future(ask(Inner(), never))
    while not waits._stop_events:
        await asyncio.sleep(0)
    end_waits()
    start, body = await asking
    assert (start["status"], body["body"]) == (201, b"later")


async def test_cut_off_wait_answers_with_the_first_answer():
    """The server's shutdown timeout has passed."""
    sent = []

    async def send(message):
        sent.append(message)

    asking = asyncio.ensure_future(WaitForCall(Inner(), never)(POST, asyncio.Queue().get, send))
    while not waits._stop_events:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (sent[0]["status"], sent[1]["body"]) == (201, b"at once")


async def test_wait_that_cannot_go_on_answers_with_the_known_state():
    """As when the database is unavailable."""

    async def fails(call_id, seconds):
        raise OSError

    for status, body in ((200, b"later"), (503, b"at once")):
        start, sent = await ask(Inner(status=status), fails)
        assert (start["status"], sent["body"]) == (201, body)


@pytest.mark.parametrize("status", [401, 403])
async def test_client_that_may_no_longer_wait_is_refused(status, monkeypatch):
    """Before and after the end of the call."""
    monkeypatch.setattr(long_polling, "POLL_SECONDS", 0)
    for settled in (never, settle_at_once):
        start, body = await ask(Inner(status=status), settled)
        assert (start["status"], body["body"]) == (status, b"later")
