"""The Procrastinate worker of an executing process; each job only passes a hint to the executor."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import procrastinate
from procrastinate.contrib.django import connector_params

from catalog.core.transactions import log_unexpected
from plans.engine.hints import QUEUE, TASK

log = logging.getLogger("toolgate.hints")
FETCHERS = 4
"""Jobs processed at once, so that one is fetched while another is delivered."""
POLL_SECONDS = 5.0
RETRY_SECONDS = 1.0
WAIT_SECONDS = 5.0
END_SECONDS = 1.0

HintCallback = Callable[[int], Awaitable[None]]


async def listen_for_hints(ring: HintCallback) -> None:
    """Call `ring(plan_pk)` for each hint until cancelled. While `ring` waits, no other worker gets the hint.

    Hints are lost while the database is unavailable; the ticker's check every second makes up for them.
    """
    while True:
        try:
            await _work(ring)
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log.warning("hints cannot be received")
            log_unexpected(error)
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 0:
            return
        await asyncio.sleep(RETRY_SECONDS)


async def _work(ring: HintCallback) -> None:
    connector = procrastinate.PsycopgConnector(
        kwargs=connector_params(),
        min_size=0,  # opening must not wait for a connection
        max_size=FETCHERS,
        timeout=WAIT_SECONDS,
        reconnect_timeout=WAIT_SECONDS,
    )
    app = procrastinate.App(connector=connector)

    @app.task(name=TASK, queue=QUEUE)
    async def hint(plan_pk: int) -> None:
        await ring(plan_pk)

    async with app.open_async():
        await app.run_worker_async(
            queues=[QUEUE],
            concurrency=FETCHERS,
            delete_jobs="always",
            fetch_job_polling_interval=POLL_SECONDS,
            shutdown_graceful_timeout=END_SECONDS,
            install_signal_handlers=False,
        )
