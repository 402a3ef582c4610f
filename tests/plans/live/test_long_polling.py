"""The long-polling middleware: answers are held while a call runs; other responses pass through."""

import asyncio

import pytest

from plans.live import long_polling, waits
from plans.live.long_polling import WAITED_KEY, WaitForCall
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


QUESTION = {**POST, "path": "/api/v1/hooks/codex/", "raw_path": b"/api/v1/hooks/codex/"}


class Asked:
    """An application that requests `waits` waits for a question, and answers each time with what it was sent."""

    def __init__(self, waits=1, status=200):
        self.waits, self.status, self.scopes, self.header = waits, status, [], b"call_1;5.0;question"

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        is_question = scope["path"] != "/api/v1/tokens/current/"
        body = (await receive())["body"] if is_question else b"token"
        headers = []
        if is_question and self.waits:
            self.waits -= 1
            headers.append((b"Toolgate-Wait", self.header))
        status = 200 if is_question else self.status
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"%d %s" % (len(self.scopes), body)})


def sends_once(body=b"{}"):
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    return receive


@pytest.mark.parametrize("waits", [1, 3])
async def test_question_is_repeated_with_its_body_until_it_is_answered(waits):
    inner = Asked(waits)
    start, body = await ask(inner, settle_at_once, sends_once(), QUESTION)
    assert (start["status"], body["body"]) == (200, b"%d {}" % (waits + 1))
    assert [WAITED_KEY in scope for scope in inner.scopes] == [False, *[True] * waits]
    waited = inner.scopes[-1][WAITED_KEY]
    assert waited.call_id == "call_1"
    assert 0 < waited.seconds <= 5.0


async def test_question_has_no_seconds_left_when_its_time_is_over():
    async def takes_long(call_id, seconds):
        return call_id

    inner = Asked(waits=9)
    inner_wait = long_polling.RequestedWait("call_1", 0.0, "question")
    answer = long_polling.HeldResponse(None)
    answer.wait = inner_wait
    body = long_polling.KeptBody(sends_once())
    await body.receive()
    sent = []

    async def send(message):
        sent.append(message)

    await WaitForCall(inner, takes_long)._repeat(answer, body, QUESTION, send)
    assert len(inner.scopes) == 1
    assert inner.scopes[0][WAITED_KEY].seconds == 0.0
    assert sent[1]["body"] == b"1 {}"


async def test_question_does_not_wait_when_others_keep_too_much(monkeypatch):
    monkeypatch.setattr(long_polling, "MAX_KEPT_BYTES", 10)
    inner = Asked(waits=9)
    _, body = await ask(inner, never, sends_once(b"12345678901"), QUESTION)
    assert body["body"] == b"2 12345678901"
    assert inner.scopes[-1][WAITED_KEY].seconds == 0.0


async def test_question_does_not_wait_when_its_own_owner_keeps_too_much(monkeypatch):
    monkeypatch.setattr(long_polling, "MAX_KEPT_OF_OWNER", 10)
    inner = Asked(waits=9)
    inner.header = b"call_1;5.0;question;token:1"
    middleware = WaitForCall(inner, never)
    middleware.kept_by_owner["token:2"] = 10
    middleware.kept_by_owner["token:1"] = 9
    sent = []

    async def send(message):
        sent.append(message)

    await middleware(QUESTION, sends_once(b"12"), send)
    assert inner.scopes[-1][WAITED_KEY].seconds == 0.0
    assert middleware.kept_by_owner == {"token:1": 9, "token:2": 10}


async def test_list_of_deferred_calls_is_repeated_while_it_is_empty(monkeypatch):
    monkeypatch.setattr(long_polling, "DEFERRED_SECONDS", 0.0)
    inner = Asked(waits=2)
    inner.header = b";5.0;deferred"
    scope = {**QUESTION, "method": "GET", "path": "/api/v1/permissions/deferred/"}
    _, body = await ask(inner, settle_at_once, sends_once(b""), scope)
    assert body["body"] == b"3 "


async def test_stop_ends_the_wait_of_a_question():
    async def stops(call_id, seconds):
        end_waits()
        await asyncio.Event().wait()

    inner = Asked(waits=9)
    _, body = await ask(inner, stops, sends_once(), QUESTION)
    assert body["body"] == b"2 {}"
    assert inner.scopes[-1][WAITED_KEY].seconds == 0.0


async def test_question_of_an_ended_token_is_refused(monkeypatch):
    monkeypatch.setattr(long_polling, "POLL_SECONDS", 0.0)

    async def never(call_id, seconds):
        await asyncio.Event().wait()

    start, body = await ask(Asked(status=401), never, sends_once(), QUESTION)
    assert (start["status"], body["body"]) == (401, b"2 token")


async def test_question_of_a_client_that_has_gone_is_not_repeated():
    async def never(call_id, seconds):
        await asyncio.Event().wait()

    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive():
        return messages.pop()

    inner = Asked()
    assert await ask(inner, never, receive, QUESTION) == []
    assert len(inner.scopes) == 1
