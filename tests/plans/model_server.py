"""A server that speaks OpenAI's chat completions and answers what a test has written down for it, in order."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "scripted"
SPLIT_INTO = 7
"""Characters in each piece of a streamed answer."""
PATIENCE = 240.0
"""Seconds after which a reply is given though its event was never set: a test has failed by then."""


@dataclass(frozen=True)
class Reply:
    """One answer: its text, or an error; one that `waits` is given when the event is set.

    `tool_calls` are (id, name, arguments as JSON text); some servers give no id. A streamed one waits in the middle of
    its text, and one that `breaks` ends there, without its end.
    """

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    tool_calls: tuple[tuple[str | None, str, str], ...] = ()
    waits: threading.Event | None = None
    breaks: bool = False
    finish: str = "stop"


Script = str | Reply | Callable[[dict[str, Any]], "str | Reply"]


class ModelServer:
    """The scripted answers of the server, and the requests it got."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.waiting = threading.Event()
        self._script: list[Script] = []
        self._lock = threading.Lock()

    def says(self, *script: Script) -> None:
        """Answer this next, one after the other; a function is given the request's body."""
        self._script += script

    @property
    def left(self) -> int:
        """Number of scripted answers that are left."""
        return len(self._script)

    def read(self, index: int = -1) -> str:
        """Return all texts of one request, as the model reads them."""
        return "\n".join(_text(each["content"]) for each in self.asked[index]["messages"] if each.get("content"))

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        """Take the next answer for a request."""
        with self._lock:
            self.asked.append(body)
            self.headers.append(headers)
            script = self._script.pop(0) if self._script else Reply("The script is over.", status=400)
        said = script(body) if callable(script) else script
        return Reply(said) if isinstance(said, str) else said


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Serve on a free port of this machine while the block lasts."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    scripted = ModelServer(f"http://127.0.0.1:{http.server_port}/v1")
    http.scripted = scripted  # type: ignore[attr-defined] # handlers find it through their server
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield scripted
    finally:
        http.shutdown()
        http.server_close()
        thread.join(PATIENCE)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the base class names it
        """Answer one request."""
        scripted: ModelServer = self.server.scripted  # type: ignore[attr-defined] # set when it was made
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = scripted.answer(body, dict(self.headers.items()))
        if reply.waits is not None and not body.get("stream"):
            scripted.waiting.set()
            reply.waits.wait(PATIENCE)
        try:
            self._give(reply, body, scripted)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def _give(self, reply: Reply, body: dict[str, Any], scripted: ModelServer) -> None:
        if reply.status != 200:
            self._send(reply, json.dumps({"error": {"message": reply.text, "type": "scripted"}}).encode())
        elif body.get("stream"):
            self._stream(reply, scripted)
        else:
            self._send(reply, json.dumps(_completion(reply)).encode())

    def _send(self, reply: Reply, payload: bytes) -> None:
        self.send_response(reply.status)
        for name, value in ({"Content-Type": "application/json"} | reply.headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self, reply: Reply, scripted: ModelServer) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        pieces = list(_pieces(reply))
        for index, piece in enumerate(pieces):
            if index == len(pieces) // 2 and reply.waits is not None:
                scripted.waiting.set()
                reply.waits.wait(PATIENCE)
            if index == len(pieces) // 2 and reply.breaks:
                self.close_connection = True
                return
            self._chunk(b"data: " + json.dumps(piece).encode() + b"\n\n")
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _usage(reply: Reply) -> dict[str, int]:
    words = max(1, len(reply.text.split()))
    return {"prompt_tokens": 11, "completion_tokens": words, "total_tokens": 11 + words}


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (call_id, name, arguments) in enumerate(reply.tool_calls)
    ]


def _frame(kind: str) -> dict[str, Any]:
    return {"id": "scripted-1", "object": kind, "created": 1_750_000_000, "model": MODEL}


def _completion(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.tool_calls:
        message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in _calls(reply)]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return _frame("chat.completion") | {"choices": [choice], "usage": _usage(reply)}


def _pieces(reply: Reply) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _frame("chat.completion.chunk") | {"choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    for start in range(0, len(reply.text), SPLIT_INTO):
        yield chunk({"content": reply.text[start : start + SPLIT_INTO]})
    for call in _calls(reply):
        function = call["function"]
        middle = len(function["arguments"]) // 2
        yield chunk({"tool_calls": [call | {"function": function | {"arguments": function["arguments"][:middle]}}]})
        rest = {"index": call["index"], "function": {"arguments": function["arguments"][middle:]}}
        yield chunk({"tool_calls": [rest]})
    yield chunk({}, _finish(reply))
    yield _frame("chat.completion.chunk") | {"choices": [], "usage": _usage(reply)}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls else reply.finish
