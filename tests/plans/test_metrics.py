"""Metrics of a process: open sockets, threads, a folder for several processes, and a separate port."""

import os
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from django.core.management.base import CommandError

from plans import metrics
from plans.management.commands.worker import measure_at
from plans.metrics import MULTIPROCESS_DIR_VARIABLE, REGISTRY
from tests.builders import act, make_plan
from tests.plans.conftest import gate
from tests.waiting import eventually

pytestmark = pytest.mark.db

__all__ = ["gate"]


def value(name: str, **labels: str) -> float:
    """Return the current value of a series."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_sockets_are_counted_while_they_are_open():
    """Also sockets that fail."""
    before = value("toolgate_sockets_open")
    with pytest.raises(ZeroDivisionError), metrics.count_open_socket(), metrics.count_open_socket():
        assert value("toolgate_sockets_open") == before + 2
        raise ZeroDivisionError
    assert value("toolgate_sockets_open") == before


def test_threads_are_busy_or_idle(executor, stage, ada, gate):
    """Measured at each tick, whose time is recorded."""
    eventually(lambda: value("toolgate_executor_threads", state="idle") == 2, what="two idle threads")
    stage.acts["safe"] = lambda value, context: gate.wait(60)
    make_plan(ada, act(1))
    eventually(lambda: value("toolgate_executor_threads", state="busy") == 1, what="a busy thread")
    gate.set()
    eventually(lambda: value("toolgate_executor_threads", state="busy") == 0, what="its end")
    ticked = value("toolgate_ticker_last_tick_timestamp_seconds")
    eventually(lambda: value("toolgate_ticker_last_tick_timestamp_seconds") > ticked, what="the next tick")


def test_children_share_a_temporary_folder(monkeypatch):
    """A configured folder is kept."""
    monkeypatch.delenv(MULTIPROCESS_DIR_VARIABLE, raising=False)
    with metrics.share_with_children():
        folder = Path(os.environ[MULTIPROCESS_DIR_VARIABLE])
        assert folder.is_dir()
    assert (MULTIPROCESS_DIR_VARIABLE in os.environ, folder.exists()) == (False, False)
    monkeypatch.setenv(MULTIPROCESS_DIR_VARIABLE, "/named")
    with metrics.share_with_children():
        assert os.environ[MULTIPROCESS_DIR_VARIABLE] == "/named"
    assert os.environ[MULTIPROCESS_DIR_VARIABLE] == "/named"


def test_worker_serves_metrics_on_its_port():
    """On localhost; a port that is taken or invalid is refused by name."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"at port {port}"):
            measure_at(port)
    measure_at(port)
    assert b"toolgate_leases_lost_total" in urlopen(f"http://127.0.0.1:{port}/metrics").read()
    with pytest.raises(CommandError, match="1 to 65535"):
        measure_at(70_000)
