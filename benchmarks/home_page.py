"""`home_page_ms` and `home_page_kb`: the home page of a reviewer with 1,000 waiting requests."""

from time import perf_counter

from django.conf import settings
from django.db import connection, transaction
from django.test import Client

from benchmarks.ground import person, prepare
from benchmarks.queue_page import fill_queue
from plans.executor.lifecycle import tune_garbage_collector

WAITING = 1000
DECIDED = 20_000
PAGES = 20


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each page."""
    client = _prepare_page()
    return [_open(client)[0] for _ in range(runs * PAGES)]


def measure_size(runs: int) -> list[float]:
    """Return the compressed size of the page in kilobytes."""
    client = _prepare_page()
    return [_open(client)[1] for _ in range(runs)]


def _prepare_page() -> Client:
    asker, reviewer = prepare(), person("reviewer")
    with transaction.atomic():
        fill_queue(asker, reviewer, waiting=WAITING, decided=DECIDED)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does within a minute
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client(headers={"Accept-Encoding": "gzip"})
    client.force_login(reviewer)
    _open(client)
    tune_garbage_collector()
    return client


def _open(client: Client) -> tuple[float, float]:
    started = perf_counter()
    response = client.get("/")
    milliseconds = (perf_counter() - started) * 1000
    if response.status_code != 200:
        raise RuntimeError(f"/ answered {response.status_code}.")
    return milliseconds, len(response.content) / 1000
