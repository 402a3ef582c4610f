"""ASGI handler: reads the body, runs Django in one thread from a pool, and sends the response.

Django's own handler starts a thread for each request and switches to it several times, which costs more than most of
our requests. Here a thread is used only while Django works, so that slow clients block nobody.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from io import BytesIO
from typing import IO, Any, TypeVar, cast

from django.conf import settings
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.core.signals import request_started
from django.db import close_old_connections
from django.http import HttpResponseBase, StreamingHttpResponse
from django.urls import set_script_prefix

from config.operations.request_log import REFUSED_BODY_KEY
from config.serving.request_body import BodyRefused, has_asking_token, read_body, with_length

ResultT = TypeVar("ResultT")
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
PROBE_THREADS = 2
"""Threads reserved for probes: an unavailable database blocks the others, but the process must not look dead."""

RUNNING_THREADS = 3
"""Threads that may run at once: the interpreter lets one of them run Python while others wait for the database. With
more, each request takes more processor time, because the interpreter switches between them."""
TURN_SECONDS = 0.025
"""Time after which a thread that still works on its request lets another one run: it probably waits, for a tool, a
preview or a lock."""


class ThreadedHandler(ASGIHandler):
    def __init__(self) -> None:
        BaseHandler.__init__(self)
        self.load_middleware(is_async=False)
        self._threads = ThreadPoolExecutor(settings.WEB_THREADS, thread_name_prefix="toolgate-web")
        self._turns = asyncio.Semaphore(RUNNING_THREADS)
        self._probed = ThreadPoolExecutor(PROBE_THREADS, thread_name_prefix="toolgate-probe")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            body = await read_body(scope, receive, lambda: self._in_thread(has_asking_token, scope))
            scope = with_length(scope, body.getbuffer().nbytes)
        except RequestAborted:
            return
        except BodyRefused as refusal:
            body, scope = BytesIO(), {**scope, REFUSED_BODY_KEY: refusal.status}
        if scope["path"] in PROBES:
            response = await self._in_thread(self._answer, scope, body, threads=self._probed)
        else:
            response = await self._in_turn(self._answer, scope, body)
        if not response.streaming:
            await self.send_response(response, send)
            return
        try:
            if isinstance(response, StreamingHttpResponse) and not response.is_async:
                response.block_size = self.chunk_size  # type: ignore[attr-defined]
                content = cast("Iterator[bytes]", response.streaming_content)
                response.streaming_content = self._pieces(content)
            await self.send_response(response, send)
        finally:
            await self._in_thread(response.close)

    async def _in_turn(self, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """Run a function in a thread once fewer than RUNNING_THREADS others have begun within TURN_SECONDS."""
        async with self._turns:
            future = asyncio.ensure_future(self._in_thread(function, *arguments))
            await asyncio.wait([future], timeout=TURN_SECONDS)
        return await future

    async def _in_thread(
        self, function: Callable[..., ResultT], *arguments: Any, threads: ThreadPoolExecutor | None = None
    ) -> ResultT:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads or self._threads, copy_context().run, function, *arguments)

    def _answer(self, scope: Any, body: IO[bytes]) -> HttpResponseBase:
        """Return the response, complete unless it streams. The thread's database connection is always closed."""
        try:
            with body:
                set_script_prefix(get_script_prefix(scope))
                request_started.send(sender=self.__class__, scope=scope)
                request, refusal = self.create_request(scope, body)
                response = cast("HttpResponseBase", refusal) if request is None else self.get_response(request)
                response._handler_class = self.__class__  # type: ignore[attr-defined] # Django names the sender of its signal
                if not response.streaming:
                    response.close()
        finally:
            close_old_connections()
        return response

    async def _pieces(self, content: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (piece := await self._in_thread(_next_piece, content)) is not None:
            yield piece


def _next_piece(content: Iterator[bytes]) -> bytes | None:
    """Return the next piece, or None at the end. Closes the thread's database connection: the client may be slow."""
    try:
        return next(content, None)
    finally:
        close_old_connections()
