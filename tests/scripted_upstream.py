"""A scripted MCP server of raw HTTP, without an SDK: it answers with any status, headers, bytes, events and delays.

Unless a test scripts something else, it keeps sessions, lists `tools`, and answers each call with the text "done".
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.http_server import serving

VERSION = "2025-11-25"
ANY_OBJECT = {"type": "object"}
DONE = {"content": [{"type": "text", "text": "done"}]}
JSON, EVENTS = "application/json", "text/event-stream"


@dataclass(frozen=True)
class Reply:
    """One answer to a request: a result, an error, events or plain bytes.

    `events` are messages, bytes as they are, or seconds to wait; in messages, the id `"?"` and the progress token `"?"`
    are those of the request. With `cut`, the connection closes before the end that Content-Length announces; with
    `drop`, before an answer. `after` delays the answer until the event is set.
    """

    result: Any = None
    error: Mapping[str, Any] | None = None
    status: int = 200
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    events: Sequence[Mapping[str, Any] | bytes | float] = ()
    cut: bool = False
    drop: bool = False
    after: threading.Event | None = None


def message(**fields: Any) -> dict[str, Any]:
    """Return a JSON-RPC message as an event."""
    return {"jsonrpc": "2.0", **fields}


def progress(amount: float, **fields: Any) -> dict[str, Any]:
    """Return the event of a progress notification."""
    return message(method="notifications/progress", params={"progressToken": "?", "progress": amount, **fields})


class ScriptedUpstream(ThreadingHTTPServer):
    """The server. `requests` holds what arrived: method, params and headers; `answers` its client's answers to it."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Exchange)
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        self.tools: list[Any] = [{"name": "good", "inputSchema": ANY_OBJECT}]
        self.capabilities: dict[str, Any] = {"tools": {}}
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.answers: list[dict[str, Any]] = []
        self.opened = 0
        self.valid_sessions: set[str] = set()
        self.lost = Reply(status=404, error={"code": -32001, "message": "Session not found"})
        """The answer to a request with the identifier of a forgotten session."""
        self.has_closed = threading.Event()
        self.has_request = threading.Event()
        """Set by a request whose answer has to wait."""
        self._scripts: dict[str, list[Reply]] = {}

    def on(self, method: str, *replies: Reply) -> None:
        """Answer requests of a method, or calls of a tool of this name, with these in turn; the last one stays."""
        self._scripts[method] = list(replies)

    def forget_sessions(self) -> None:
        """Answer requests of all known sessions with `lost`, as after a restart."""
        self.valid_sessions.clear()

    def calls(self) -> list[str]:
        """Return the names of the tools that were called, in turn."""
        return [params["name"] for method, params, _ in self.requests if method == "tools/call"]

    def reply_to(self, method: str, params: Mapping[str, Any]) -> Reply:
        """Return the next answer."""
        script = self._scripts.get(str(params.get("name"))) if method == "tools/call" else None
        script = script or self._scripts.get(method)
        if script:
            return script.pop(0) if len(script) > 1 else script[0]
        if method == "initialize":
            self.opened += 1
            session = f"s{self.opened}"
            self.valid_sessions.add(session)
            info = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": VERSION, "capabilities": self.capabilities, "serverInfo": info}
            return Reply(result, headers={"Mcp-Session-Id": session})
        if method == "tools/list":
            return Reply({"tools": self.tools})
        return Reply(DONE) if method == "tools/call" else Reply(error={"code": -32601, "message": "Not known"})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that the client closes."""


class _Exchange(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each answer takes 40 ms
    server: ScriptedUpstream

    def do_POST(self) -> None:
        """Answer a JSON-RPC message."""
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "method" not in sent:
            self.server.answers.append(sent)
        if "id" not in sent or "method" not in sent:
            self._say(b"", Reply(status=202))
            return
        method, params = sent["method"], sent.get("params", {})
        self.server.requests.append((method, params, dict(self.headers.items())))
        session = self.headers.get("Mcp-Session-Id")
        is_lost = session is not None and session not in self.server.valid_sessions
        reply = self.server.lost if is_lost else self.server.reply_to(method, params)
        if reply.after is not None:
            self.server.has_request.set()
            reply.after.wait(60)
        if reply.drop:
            self.close_connection = True
            return
        if reply.events:
            self._stream(reply, sent)
        elif reply.body is not None:
            self._say(reply.body, reply)
        else:
            answer = {"error": reply.error} if reply.error is not None else {"result": reply.result}
            self._say(json.dumps({"jsonrpc": "2.0", "id": sent["id"], **answer}).encode(), reply)

    def _stream(self, reply: Reply, sent: Mapping[str, Any]) -> None:
        token = sent.get("params", {}).get("_meta", {}).get("progressToken")
        self.send_response(reply.status)
        self.send_header("Content-Type", EVENTS)
        self.send_header("Connection", "close")
        self.end_headers()
        for event in reply.events:
            if isinstance(event, float):
                threading.Event().wait(event)
                continue
            if isinstance(event, Mapping):
                filled = {**event, "id": sent["id"]} if event.get("id") == "?" else dict(event)
                if filled.get("params", {}).get("progressToken") == "?":
                    filled["params"] = {**filled["params"], "progressToken": token}
                event = b"data: " + json.dumps(filled).encode() + b"\n\n"
            self.wfile.write(event)
            self.wfile.flush()
        self.close_connection = True

    def do_GET(self) -> None:
        """Offer no stream."""
        self._say(b"", Reply(status=405))

    def do_DELETE(self) -> None:
        """End a session."""
        self.server.has_closed.set()
        self._say(b"", Reply())

    def _say(self, body: bytes, reply: Reply) -> None:
        self.send_response(reply.status)
        length = str(len(body) + 1000 * reply.cut)
        headers = {"Content-Type": reply.kind, "Content-Length": length, "Connection": "close", **reply.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        if reply.cut:
            self.close_connection = True

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def scripted_upstream(port: int = 0) -> Iterator[ScriptedUpstream]:
    """Serve for a while."""
    with serving(ScriptedUpstream(port)) as server:
        yield server
