"""A model server on this machine that answers what a script says: text, or calls of the client's tools.

Coding agents run against it without cost and without a network. It speaks the APIs of four providers, always as a
stream: Messages (Claude Code), Responses (Codex), Chat Completions (opencode) and Gemini (Gemini CLI).

The turn is read from the conversation that a client sends: the number of turns with tool calls in it. A session that
is resumed therefore continues its script, and a repeated request gets the same answer.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

MODEL = "scripted"
USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}


@dataclass(frozen=True, slots=True)
class ScriptedUse:
    """One call of a tool of the client; the name and the input are as the client defines them."""

    name: str
    input: Mapping[str, Any]


Turn = str | Sequence[ScriptedUse]
"""A text, which ends the run, or tool calls."""
Script = Sequence[Turn]
Event = dict[str, Any] | str


@dataclass
class ScriptedModel:
    """The running server: its script, and the requests it received."""

    url: str
    script: Script
    requests: list[dict[str, Any]] = field(default_factory=list)

    def turn_of(self, body: dict[str, Any], number: int) -> Turn:
        """Return the answer to a request in whose conversation `number` turns called tools.

        A request that offers no tools asks for something else, such as a title: it gets a text.
        """
        tools = body.get("tools") or any("tools" in item for item in body.get("input", ()) if isinstance(item, dict))
        return self.script[number] if tools and number < len(self.script) else "Done."


@contextmanager
def scripted_model(script: Script) -> Iterator[ScriptedModel]:
    """Serve the script on a free port of this machine while the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    model = ScriptedModel(f"http://127.0.0.1:{server.server_port}", script)
    server.model = model  # type: ignore[attr-defined] # handlers find it through their server
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer clients that list the models first."""
        self._send(json.dumps({"object": "list", "data": [], "models": []}).encode(), "application/json")

    def do_HEAD(self) -> None:
        self._send(b"", "application/json")

    def do_POST(self) -> None:
        model: ScriptedModel = self.server.model  # type: ignore[attr-defined] # set when it was made
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = urlsplit(self.path).path
        api = next((api for ending, api in _APIS.items() if path.endswith(ending)), None)
        if api is None:
            self._send(b'{"input_tokens": 1, "totalTokens": 1}', "application/json")
            return
        model.requests.append(body)
        number, answer = api
        events = answer(model.turn_of(body, number(body)), len(model.requests))
        if path.endswith(":generateContent"):
            self._send(json.dumps(events[0]).encode(), "application/json")
        else:
            self._send(b"".join(_event(each) for each in events), "text/event-stream")

    def _send(self, payload: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def _event(event: Event) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def _messages_number(body: dict[str, Any]) -> int:
    return sum(
        message["role"] == "assistant"
        and not isinstance(message["content"], str)
        and any(block.get("type") == "tool_use" for block in message["content"])
        for message in body["messages"]
    )


def _messages(turn: Turn, request: int) -> list[Event]:
    message: dict[str, Any] = {
        "id": f"msg_{request}", "type": "message", "role": "assistant", "model": MODEL, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    events: list[Event] = [{"type": "message_start", "message": message}]
    if isinstance(turn, str):
        blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"type": "text", "text": ""}, {"type": "text_delta", "text": turn})
        ]
    else:
        blocks = [
            (
                {"type": "tool_use", "id": f"toolu_{request}_{index}", "name": use.name, "input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(use.input)},
            )
            for index, use in enumerate(turn)
        ]
    for index, (block, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    reason = "end_turn" if isinstance(turn, str) else "tool_use"
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 1},
        }
    )
    events.append({"type": "message_stop"})
    return events


def _responses_number(body: dict[str, Any]) -> int:
    kinds = [item.get("type", "message") for item in body["input"]] if not isinstance(body["input"], str) else []
    calls = [kind.endswith("_call") and not kind.startswith("web") for kind in kinds]
    return sum(call and not before for before, call in zip([False, *calls], calls, strict=False))


def _responses(turn: Turn, request: int) -> list[Event]:
    answer = {"id": f"resp_{request}", "object": "response", "model": MODEL, "status": "in_progress", "output": []}
    if isinstance(turn, str):
        content = [{"type": "output_text", "text": turn, "annotations": []}]
        items = [
            {"type": "message", "id": f"item_{request}", "role": "assistant", "status": "completed", "content": content}
        ]
    else:
        items = [_response_item(use, f"{request}_{index}") for index, use in enumerate(turn)]
    events: list[Event] = [{"type": "response.created", "response": answer}]
    events += [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(items)]
    events.append(
        {"type": "response.completed", "response": answer | {"status": "completed", "output": items, "usage": USAGE}}
    )
    return events


def _response_item(use: ScriptedUse, name: str) -> dict[str, Any]:
    """Return an item: a tool with the input `{"input": TEXT}` alone is a custom tool, such as apply_patch."""
    call = {"id": f"item_{name}", "call_id": f"call_{name}", "name": use.name, "status": "completed"}
    if list(use.input) == ["input"]:
        return call | {"type": "custom_tool_call", "input": use.input["input"]}
    return call | {"type": "function_call", "arguments": json.dumps(use.input)}


def _chat_number(body: dict[str, Any]) -> int:
    return sum(bool(message.get("tool_calls")) for message in body["messages"])


def _chat(turn: Turn, request: int) -> list[Event]:
    delta: dict[str, Any] = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
    if not isinstance(turn, str):
        delta["tool_calls"] = [
            {
                "index": index, "id": f"call_{request}_{index}", "type": "function",
                "function": {"name": use.name, "arguments": json.dumps(use.input)},
            }
            for index, use in enumerate(turn)
        ]  # fmt: skip
    base = {"id": f"chat_{request}", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    reason = "stop" if isinstance(turn, str) else "tool_calls"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [
        base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        base | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
        "[DONE]",
    ]


def _gemini_number(body: dict[str, Any]) -> int:
    return sum(
        content.get("role") == "model" and any("functionCall" in part for part in content["parts"])
        for content in body["contents"]
    )


def _gemini(turn: Turn, request: int) -> list[Event]:
    parts: list[dict[str, Any]]
    if isinstance(turn, str):
        parts = [{"text": turn}]
    else:
        parts = [
            {"functionCall": {"id": f"call_{request}_{index}", "name": use.name, "args": dict(use.input)}}
            for index, use in enumerate(turn)
        ]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return [{"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL}]


_Api = tuple[Callable[[dict[str, Any]], int], Callable[[Turn, int], list[Event]]]
_APIS: dict[str, _Api] = {
    "/messages": (_messages_number, _messages),
    "/responses": (_responses_number, _responses),
    "/chat/completions": (_chat_number, _chat),
    ":streamGenerateContent": (_gemini_number, _gemini),
    ":generateContent": (_gemini_number, _gemini),
}
"""By the end of the path: the number of the turn, and the events of an answer."""
