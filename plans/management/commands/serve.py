"""`manage.py serve`: pages, API, sockets and the embedded executor, in one process or several."""

import os
import signal
from argparse import ArgumentParser
from collections.abc import Callable
from socket import socket
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from uvicorn.supervisors import Multiprocess

from plans.management.preconditions import refuse_without_migrations
from plans.metrics import share_with_children

APPLICATION = "config.asgi:application"
WITHOUT_EXECUTOR = "config.asgi:application_without_executor"
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (only a name; nothing is bound)
REQUESTS_END_SECONDS = 5
SOCKET_BYTES = 4096
"""Maximum size of a socket message from a client. The server ignores the content of these messages."""


class Server(uvicorn.Server):
    """Server that prints its address once it accepts requests."""

    def __init__(self, config: uvicorn.Config, say: Callable[[str], object]) -> None:
        super().__init__(config)
        self._say = say

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._say(f"Toolgate serves on {address(host, port)} (stop with Ctrl+C)")


class Command(BaseCommand):
    help = "Serve pages, API and sockets, and execute plans in the same process."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (127.0.0.1).")
        parser.add_argument("--port", default=8000, type=int, help="Port to listen on (8000); 0 chooses a free one.")
        parser.add_argument("--workers", default=1, type=int, help="Number of processes; more than one needs Redis.")
        parser.add_argument("--no-executor", action="store_true", help="Serve only; other processes execute plans.")

    def handle(self, *args: Any, **options: Any) -> None:
        workers = options["workers"]
        if not 1 <= workers <= 64:
            raise CommandError("--workers must be 1 to 64.")
        if workers > 1 and not settings.REDIS_URL:
            raise CommandError("Several workers need Redis to notify each other. Set REDIS_URL, or use one worker.")
        refuse_without_migrations()
        link_to(options["host"], options["port"])
        config = configure(options)
        # After a clean shutdown uvicorn raises the signal again; ignore it.
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        if workers > 1:
            listener = config.bind_socket()
            listener.listen(config.backlog)  # requests that arrive before the first worker is ready wait for it
            self._say(f"Toolgate serves on {address(*listener.getsockname()[:2])} with {config.workers} workers")
            with share_with_children():
                Multiprocess(config, sockets=[listener]).run()
        else:
            self._serve(config)

    def _serve(self, config: uvicorn.Config) -> None:
        server = Server(config, self._say)
        try:
            server.run()
        except KeyboardInterrupt:
            return
        if not server.started:
            raise CommandError("The server did not start; the reason is logged above.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def link_to(host: str, port: int) -> None:
    """Use this address for links in responses and mails, unless TOOLGATE_URL is set."""
    if port and "TOOLGATE_URL" not in os.environ:
        os.environ["TOOLGATE_URL"] = settings.TOOLGATE_URL = address(host, port).rstrip("/")


def configure(options: dict[str, Any]) -> uvicorn.Config:
    return uvicorn.Config(
        WITHOUT_EXECUTOR if options["no_executor"] else APPLICATION,
        host=options["host"],
        port=options["port"],
        workers=options["workers"],
        lifespan="on",
        ws="websockets-sansio",
        ws_max_size=SOCKET_BYTES,
        ws_per_message_deflate=False,
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=REQUESTS_END_SECONDS,
    )


def address(host: str, port: int) -> str:
    """Return the URL of a listening address; for a wildcard address, the local URL."""
    host = EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
