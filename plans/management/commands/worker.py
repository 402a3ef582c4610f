"""`manage.py worker`: execute the plans of a cluster. Serves no pages and does not change the catalog."""

import asyncio
import signal
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from catalog.inventory import snapshot
from catalog.tools.registry import initialize_tools
from plans import metrics
from plans.engine import hints as engine_hints
from plans.executor import procrastinate
from plans.executor.lifecycle import executor_lifespan, tune_garbage_collector
from plans.executor.pool import ExecutorPool
from plans.management.preconditions import refuse_a_restored_database, refuse_without_migrations
from toolgate.places import COMMAND

MOST_THREADS = 256
MOST_PORT = 65_535
CONNECTIONS_BESIDE = 12
FULL_SECONDS = 0.02


class Command(BaseCommand):
    help = "Execute the plans of a cluster (TOOLGATE_EXECUTOR=procrastinate) until stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--concurrency", type=int, help="Number of steps to run at a time (TOOLGATE_THREADS).")
        parser.add_argument("--metrics-port", type=int, help="Serve metrics on 127.0.0.1 at this port.")

    def handle(self, *args: Any, **options: Any) -> None:
        threads = settings.TOOLGATE_THREADS if options["concurrency"] is None else options["concurrency"]
        if settings.TOOLGATE_EXECUTOR != "procrastinate":
            raise CommandError("Plans run in the server process. Set TOOLGATE_EXECUTOR=procrastinate to use workers.")
        if not 1 <= threads <= MOST_THREADS:
            raise CommandError(f"--concurrency must be 1 to {MOST_THREADS}.")
        connection.settings_dict["OPTIONS"]["pool"]["max_size"] = 2 * threads + CONNECTIONS_BESIDE
        refuse_without_migrations()
        refuse_a_restored_database()
        initialize_tools()
        if options["metrics_port"] is not None:
            measure_at(options["metrics_port"])
        self._warn_of_drift()
        tune_garbage_collector()
        asyncio.run(self._work(ExecutorPool(threads)))

    def _warn_of_drift(self) -> None:
        """Warn about tools whose code differs from the catalog; other workers run their calls."""
        drifted = sorted(name for name, tool in snapshot.callable_tools().items() if tool.drifted)
        connection.close()
        if drifted:
            self.stderr.write(
                f"These tools differ from the catalog: {', '.join(drifted)}. Other workers will run their calls. "
                f"If this code is the right one, run `{COMMAND} sync_tools` with it."
            )

    async def _work(self, executor: ExecutorPool) -> None:
        stop_requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop_requested.set))

        async def ring(plan_pk: int) -> None:
            """Pass a hint to the threads; while they are busy, fetch no further hints."""
            while executor.is_full() and not stop_requested.is_set():
                await asyncio.sleep(FULL_SECONDS)
            engine_hints.deliver_now(plan_pk)

        async with executor_lifespan(executor):
            hints = asyncio.create_task(procrastinate.listen_for_hints(ring))
            self._say(f"Toolgate executes with {executor.threads} threads as {executor.owner} (stop with Ctrl+C)")
            await stop_requested.wait()
            hints.cancel()
            with suppress(asyncio.CancelledError):
                await hints
        self._say("Toolgate has stopped.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def measure_at(port: int) -> None:
    """Serve metrics at a port. Raises CommandError if the port cannot be used."""
    if not 0 < port <= MOST_PORT:
        raise CommandError(f"--metrics-port must be 1 to {MOST_PORT}.")
    try:
        metrics.serve(port)
    except OSError as error:
        raise CommandError(f"Metrics cannot be served at port {port}: {error.strerror}.") from error
