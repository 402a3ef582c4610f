"""How Django answers HTTP here: one hop to a thread that keeps its database connection.

Django's own ASGI handler takes a new thread for each request and crosses to it for every middleware that is not a
coroutine; both cost more than most of our requests.
"""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

THREADS_KEPT = 16
"""Threads kept for later requests, each with its connection; more are made while more requests run."""


class Handler(ASGIHandler):
    """Runs the whole chain of middleware and view as synchronous code in one borrowed thread."""

    def __init__(self) -> None:
        BaseHandler.__init__(self)
        self.load_middleware(is_async=False)
        self._idle: list[ThreadPoolExecutor] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        async with self._thread() as thread, ThreadSensitiveContext(executor=thread):
            await self.handle(scope, receive, send)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Answer in the borrowed thread; what streams (static files) is read there too, piece by piece."""
        response = await sync_to_async(self.get_response, thread_sensitive=True)(request)
        if isinstance(response, StreamingHttpResponse) and not response.is_async:
            response.streaming_content = _pieces(cast("Iterator[bytes]", response.streaming_content))
        return response

    @asynccontextmanager
    async def _thread(self) -> AsyncIterator[ThreadPoolExecutor]:
        """Borrow a thread, the one used last first."""
        thread = self._idle.pop() if self._idle else ThreadPoolExecutor(1, thread_name_prefix="toolgate-web")
        try:
            yield thread
        finally:
            if len(self._idle) < THREADS_KEPT:
                self._idle.append(thread)
            else:
                thread.shutdown(wait=False)


async def _pieces(content: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read a synchronous stream in the borrowed thread."""
    read = sync_to_async(lambda: next(content, None), thread_sensitive=True)
    while (piece := await read()) is not None:
        yield piece
