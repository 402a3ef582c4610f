"""Requests to a model: messages sent, the stored record, and errors."""

import asyncio
import json
import threading
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from catalog.context import Deadline, ToolContext
from catalog.core import clock
from catalog.models import Call
from plans.llm import client
from plans.llm.client import Answer, ChatMessage
from plans.llm.failures import AnswerUnreadable, ModelRefused, ModelTooSlow, ModelUnavailable
from plans.llm.provider import NotConfigured
from plans.models import ModelUse
from plans.store.requesters import Requester
from tests.plans.conftest import on_the_loop
from tests.plans.model_server import MODEL, Reply

pytestmark = pytest.mark.django_db(transaction=True)
KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3


def refuse(answer: Answer) -> BaseModel:
    """Find every answer unreadable."""
    raise AnswerUnreadable("There is no colour.", answer.text, answer.tokens)


@pytest.fixture
def context(ada, configured):
    """The context of a stored call."""
    from plans.actions.call import CallOrder, create_call  # noqa: PLC0415

    call = create_call(CallOrder("draft_plan", {"request": "x"}), by=Requester(ada))
    return ToolContext(call_id=call.public_id, plan_id=call.plan_ref, deadline=Deadline.after(60))


def ask(context: ToolContext, text: str = "Which colour?", **options: Any) -> client.Answer:
    """Send a request like a tool, on its own event loop."""
    messages = options.pop("messages", [ChatMessage("user", text)])
    given = {"instructions": "Answer briefly.", "messages": messages} | options
    answer = on_the_loop(client.ask_model("draft", context=context, **given))
    assert isinstance(answer, client.Answer)
    return answer


def test_answer_is_returned_and_stored(server, context):
    server.says("Blue.")
    answer = ask(context)

    assert (answer.text, answer.model, answer.input_tokens, answer.output_tokens) == ("Blue.", MODEL, 11, 1)
    roles = [(each["role"], each["content"]) for each in server.asked[0]["messages"]]
    assert roles == [("system", "Answer briefly."), ("user", "Which colour?")]
    use = ModelUse.objects.get()
    assert (use.call, use.purpose, use.model, use.error) == (Call.objects.get(), "draft", MODEL, "")
    assert json.loads(use.prompt) == [
        {"by": "instructions", "text": "Answer briefly."},
        {"by": "user", "text": "Which colour?"},
    ]
    assert json.loads(use.answer) == [{"by": "model", "text": "Blue."}]
    assert (use.input_tokens, use.output_tokens, use.cost) == (11, 1, None)


def test_a_conversation_goes_on(server, context):
    server.says("Green.")
    ask(
        context,
        messages=[ChatMessage("user", "Which?"), ChatMessage("model", "Blue."), ChatMessage("user", "Another?")],
    )
    assert [each["role"] for each in server.asked[0]["messages"]] == ["system", "user", "assistant", "user"]


def test_the_cost_is_known_for_models_of_the_price_list(server, context, settings):
    settings.TOOLGATE_MODEL = "openai:gpt-4o"
    server.says(lambda body: "Blue.")
    from pydantic_ai.messages import ModelResponse, TextPart  # noqa: PLC0415
    from pydantic_ai.usage import RequestUsage  # noqa: PLC0415

    usage = RequestUsage(input_tokens=1_000_000, output_tokens=0)
    known = ModelResponse(parts=[TextPart("x")], model_name="gpt-4o", provider_name="openai", usage=usage)
    assert client._cost_of(known) == Decimal("2.500000")


def test_unreadable_answer_is_stored_with_the_reason(server, context):
    server.says("Blue.")
    with pytest.raises(AnswerUnreadable, match="no colour"):
        ask(context, read=refuse)
    use = ModelUse.objects.get()
    assert use.error == "There is no colour."
    assert use.output_tokens >= 1


def test_an_answer_that_was_cut_off_says_so(server, context):
    server.says(Reply('{"name": "bl', finish="length"))
    with pytest.raises(AnswerUnreadable, match="cut off"):
        ask(context, read=refuse)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (500, ModelUnavailable),
        (503, ModelUnavailable),
        (429, ModelUnavailable),
        (401, ModelRefused),
        (404, ModelRefused),
        (400, ModelRefused),
    ],
)
def test_error_of_a_provider_is_reported_without_its_message(server, context, caplog, status, kind):
    """It may contain the prompt or the key."""
    server.says(Reply(f"Which colour? is a bad prompt. Incorrect key: {KEY}", status=status))
    with pytest.raises(kind) as caught:
        ask(context)
    use = ModelUse.objects.get()
    assert use.error == caught.value.message
    assert len(server.asked) == 1
    for told in (caplog.text, use.error):
        assert "Which colour" not in told
        assert KEY not in told


def test_retry_after_of_a_provider_is_limited_to_a_minute(server, context):
    server.says(Reply("later", status=429, headers={"Retry-After": "7"}))
    server.says(Reply("much later", status=429, headers={"Retry-After": "7000"}))
    waits = []
    for _ in range(2):
        with pytest.raises(ModelUnavailable) as caught:
            ask(context)
        waits.append(caught.value.retry_after)
    assert waits == [7.0, 60.0]


def test_unreachable_server_is_unavailable(server, context, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(ModelUnavailable):
        ask(context)


def test_request_is_cancelled_at_the_deadline(server, context):
    never = threading.Event()
    server.says(Reply("Blue.", waits=never))
    late = ToolContext(
        call_id=context.call_id,
        plan_id=context.plan_id,
        deadline=Deadline(clock.now() + timedelta(seconds=1)),
    )
    with pytest.raises(ModelTooSlow):
        ask(late)
    never.set()
    assert ModelUse.objects.get().error == "The model did not answer in time."


def test_stopped_request_is_cancelled_and_stored(server, context):
    never = threading.Event()
    server.says(Reply("Blue.", waits=never))

    async def stop_it() -> None:
        pending = asyncio.ensure_future(
            client.ask_model("draft", context=context, instructions="", messages=[ChatMessage("user", "x")])
        )
        await asyncio.to_thread(server.waiting.wait, 20)
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending

    on_the_loop(stop_it())
    never.set()
    assert "stopped" in ModelUse.objects.get().error


def test_secrets_reach_no_provider(server, context, caplog):
    server.says("Blue.")
    ask(context, f'The key is {KEY}, and {{"$secret":"password#{"0" * 64}"}}.', instructions=f"Use {KEY}.")
    sent = json.dumps(server.asked[0])
    assert KEY not in sent
    assert "0" * 64 not in sent
    use = ModelUse.objects.get()
    assert KEY not in use.prompt + use.answer + caplog.text
    assert "$secret" in server.read()


def test_prompts_and_answers_are_not_logged(server, context, caplog):
    caplog.set_level("DEBUG", logger="toolgate")
    server.says("Ultramarine.")
    ask(context, "Which pigment?")
    assert "model_asked purpose=draft" in caplog.text
    assert "pigment" not in caplog.text
    assert "Ultramarine" not in caplog.text


def test_no_request_without_a_model(context, settings):
    settings.TOOLGATE_MODEL = ""
    with pytest.raises(NotConfigured, match="TOOLGATE_MODEL"):
        ask(context)
    assert ModelUse.objects.get().error.startswith("No language model is configured")


@pytest.mark.parametrize("read", [refuse, None])
def test_cost_of_an_answer_that_was_cut_off_is_stored(server, context, read):
    server.says(Reply('{"name": "bl', finish="length"))
    with pytest.raises(AnswerUnreadable) as caught:
        ask(context, read=read)
    use = ModelUse.objects.get()
    assert json.loads(use.answer) == [{"by": "model", "text": '{"name": "bl'}]
    assert use.output_tokens >= 1
    assert caught.value.tokens == use.input_tokens + use.output_tokens


def test_unstorable_characters_are_removed(scripted, context):
    scripted.says('{"name": "blue\ud800\0"}')
    with pytest.raises(AnswerUnreadable):
        ask(context, "Which colour\0 is \ud800?", instructions="Answer\0.", read=refuse)
    use = ModelUse.objects.get()
    told = use.prompt + use.answer + use.error + "".join(each["text"] for each in json.loads(use.prompt + ""))
    assert "\0" not in told
    assert "\ud800" not in told
    assert json.loads(use.answer)[0]["text"].startswith('{"name": "blue')
