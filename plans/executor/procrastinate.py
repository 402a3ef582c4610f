"""The Procrastinate worker of a process that executes: each job rings the executor, and does no more."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import procrastinate
from procrastinate.contrib.django import connector_params

from catalog.core.transactions import log_unexpected
from plans.engine.hints import QUEUE, TASK

log = logging.getLogger("toolgate.hints")
FETCHERS = 4
"""Jobs fetched and not yet deleted: one is fetched while another is heard."""
POLL_SECONDS = 5.0
RETRY_SECONDS = 1.0
WAIT_SECONDS = 5.0
END_SECONDS = 1.0

HintCallback = Callable[[int], Awaitable[None]]


async def listen_for_hints(ring: HintCallback) -> None:
    """Call `ring(plan_pk)` for each hint, until cancelled; a hint is kept from other workers while `ring` waits.

    While the database is away nothing is heard; the ticker's look each second makes up for it.
    """
    while True:
        try:
            await _work(ring)
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log.warning("hints cannot be heard")
            log_unexpected(error)
        if _is_cancelled():
            return
        await asyncio.sleep(RETRY_SECONDS)


def _is_cancelled() -> bool:
    """Say whether the task was told to end: a worker that meets an error as it ends raises that alone."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _work(ring: HintCallback) -> None:
    """Run one Procrastinate worker until it is cancelled or gives up."""
    connector = procrastinate.PsycopgConnector(
        kwargs=connector_params(),
        min_size=0,  # so that opening waits for nothing
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
