"""An HTTP server on this machine that keeps what it is sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TypeVar

ServerT = TypeVar("ServerT", bound=HTTPServer)


class Taker(BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    def do_POST(self) -> None:
        """Answer with the status that the path names."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Server)
        self.server.taken.append((self.path, self.headers, body))
        self.send_response(int(self.path.strip("/") or self.server.answers))
        self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class Server(HTTPServer):
    """A server on this machine; `taken` is what arrived, `answers` the status where the path names none."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.taken: list[tuple[str, Message, bytes]] = []
        self.answers = 200


@contextmanager
def serving(server: ServerT) -> Iterator[ServerT]:
    """Let a server answer in a thread for a while, and close it."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def taking() -> Iterator[Server]:
    """Serve for a while."""
    with serving(Server()) as server:
        yield server
