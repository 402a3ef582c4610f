"""Answers that a coding agent's hook may get from Toolgate's address, and a server that gives them."""

import json
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One answer. `cut` bytes are missing at its end, after which the connection is closed; `waits` is in seconds.

    The body of a `raw` one is all that is sent.
    """

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    waits: float = 0
    raw: bool = False


def as_json(value: Any, **terms: Any) -> Answer:
    return Answer(json.dumps(value).encode(), **terms)


def doubtful(allow: dict[str, Any]) -> dict[str, Answer]:
    """Return answers that must not let a tool run, beside the one that does."""
    text = json.dumps(allow).encode()
    return {
        "empty": Answer(b""),
        "no content": Answer(b"", status=204),
        "html": Answer(b"<html>Sign in</html>", content_type="text/html"),
        "allow as html": Answer(text, content_type="text/html"),
        "allow as text": Answer(text, content_type="text/plain"),
        "allow created": Answer(text, status=201),
        "object without decision": as_json({}),
        "other object": as_json({"continue": True, "detail": "x"}),
        "list": as_json([allow]),
        "null": as_json(None),
        "half json": Answer(text[:-1]),
        "two values": Answer(text + text),
        "key twice": Answer(b'{"decision": "deny", ' + text[1:-1] + b', "decision": "allow", "decision": "allow"}'),
        "not utf-8": Answer(text + b"\xff"),
        "deep": Answer(b"[" * 200_000),
        "cut": Answer(text, cut=1),
        "no status": Answer(b"nonsense\r\n\r\n", raw=True),
        "cut chunk": Answer(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n" + text,
            raw=True,
        ),
        "slow": Answer(text, waits=1),
        "redirect": Answer(text, status=302, headers={"Location": "/allow/api/v1/hooks/x/"}),
        "redirect keeping the method": Answer(text, status=307, headers={"Location": "/allow/api/v1/hooks/x/"}),
        **{str(status): Answer(text, status=status) for status in (400, 401, 403, 404, 413, 429, 500, 502, 503)},
    }


class AnsweringServer(ThreadingHTTPServer):
    """`answers` by the first segment of the path; `taken` is what arrived: path, authorization, body."""

    daemon_threads = True

    def __init__(self, answers: dict[str, Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = {name.replace(" ", "-"): answer for name, answer in answers.items()}
        self.taken: list[tuple[str, str | None, bytes]] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name.replace(' ', '-')}"


class _Handler(BaseHTTPRequestHandler):
    server: AnsweringServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.taken.append((self.path, self.headers["Authorization"], body))
        answer = self.server.answers[self.path.split("/")[1]]
        time.sleep(answer.waits)  # outlasts the patience of the hook; no test waits for it
        if answer.raw:
            self.wfile.write(answer.body)
            return
        self.send_response(answer.status)
        for name, value in {"Content-Type": answer.content_type, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) - answer.cut])

    do_GET = do_POST

    def do_CONNECT(self) -> None:
        self.server.taken.append((self.path, None, b""))
        self.send_error(502)

    def log_message(self, *args: object) -> None:
        """Say nothing."""
