"""ASGI handler: threads are used only while Django works, and connections are closed."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from channels.testing import HttpCommunicator
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.templatetags.static import static
from django.urls import path

from config.operations.health import healthz
from config.serving.handler import RUNNING_THREADS, ThreadedHandler
from plans.live import feed

pytestmark = pytest.mark.db

PLACES = RUNNING_THREADS + 1
"""One thread more than run at once: the last runs only because the others are known to wait."""
running: list[str] = []
most: list[int] = []


def plain(request: HttpRequest) -> HttpResponse:
    """Query the database."""
    User.objects.count()
    return HttpResponse(b"done")


def crowded(request: HttpRequest) -> HttpResponse:
    """Query the database, then wait until all threads have done so."""
    running.append(threading.current_thread().name)
    most.append(len(running))
    User.objects.count()
    everyone.wait(60)
    running.pop()
    return HttpResponse(b"done")


def broken(request: HttpRequest) -> HttpResponse:
    """Query the database, then raise an uncaught exception."""
    User.objects.count()
    raise Ended


class Ended(BaseException):
    """An exception that Django does not catch."""


def held(request: HttpRequest) -> HttpResponse:
    """Wait as for a database that is away."""
    gate.wait(30)
    return HttpResponse(b"done")


gate = threading.Event()
everyone = threading.Barrier(PLACES)
urlpatterns = [
    path("plain/", plain),
    path("crowded/", crowded),
    path("broken/", broken),
    path("held/", held),
    path("healthz", healthz),
]


@pytest.fixture
def handler(settings: Any, transactional_db: None) -> Iterator[ThreadedHandler]:
    """A handler with few threads, of the views above."""
    settings.ROOT_URLCONF, settings.WEB_THREADS = __name__, PLACES
    running.clear()
    most.clear()
    everyone.reset()
    made = ThreadedHandler()
    yield made
    made._threads.shutdown()


async def get(handler: ThreadedHandler, address: str) -> Any:
    """Send one request; return its response."""
    return await asking(handler, "GET", address).get_response(timeout=20)


def asking(handler: ThreadedHandler, method: str, address: str) -> HttpCommunicator:
    """Return a client with one request to send."""
    return HttpCommunicator(handler, method, address, headers=[(b"host", b"localhost")])


async def test_a_burst_waits_for_its_turn(handler: ThreadedHandler) -> None:
    responses = await asyncio.gather(*(get(handler, "/crowded/") for _ in range(10 * PLACES)))
    assert {response["status"] for response in responses} == {200}
    assert max(most) == PLACES


async def test_probes_are_answered_while_every_thread_waits(handler: ThreadedHandler) -> None:
    """An unavailable database is no reason to restart the process."""
    gate.clear()
    held = [asyncio.ensure_future(get(handler, "/held/")) for _ in range(2 * PLACES)]
    assert (await get(handler, "/healthz"))["status"] == 200
    assert not any(each.done() for each in held)
    gate.set()
    assert {response["status"] for response in await asyncio.gather(*held)} == {200}


async def test_slow_senders_occupy_no_thread(handler: ThreadedHandler) -> None:
    begun = [asking(handler, "POST", "/plain/") for _ in range(PLACES)]
    for each in begun:
        await each.send_input({"type": "http.request", "body": b"x", "more_body": True})
    assert (await get(handler, "/plain/"))["status"] == 200
    for each in begun:
        await each.send_input({"type": "http.disconnect"})
        await each.wait(timeout=60)


async def test_a_file_is_sent_whole(handler: ThreadedHandler) -> None:
    source = configured.BASE_DIR / "static" / "app.js"
    client = asking(handler, "GET", static("app.js"))
    await client.send_input({"type": "http.request", "body": b""})
    start, body = await client.receive_output(timeout=60), await client.receive_output(timeout=60)
    assert (start["status"], body["body"]) == (200, source.read_bytes())
    assert not (await client.receive_output(timeout=60)).get("more_body")
    await client.wait(timeout=60)


@pytest.mark.service
async def test_a_thread_keeps_no_connection_that_others_could_use(handler: ThreadedHandler) -> None:
    await get(handler, "/plain/")
    client = asking(handler, "GET", "/broken/")
    await client.send_input({"type": "http.request", "body": b""})
    with pytest.raises(Ended):
        await client.wait(timeout=60)
    held = await asyncio.gather(*(handler._in_thread(_holds_a_connection) for _ in range(PLACES)))
    assert not any(held)


def _holds_a_connection() -> bool:
    return connections["default"].connection is not None


@pytest.mark.service
def test_there_is_a_connection_for_every_thread() -> None:
    pool = configured.DATABASES["default"]["OPTIONS"]["pool"]
    ticker, looks = 1, 2
    beside = feed.READERS + ticker + looks
    assert configured.WEB_THREADS + 2 * configured.TOOLGATE_THREADS + beside <= pool["max_size"]
