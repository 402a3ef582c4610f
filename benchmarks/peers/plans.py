"""`chain_ratio_langgraph`, `fanout_ratio_dbos`: a plan and the same work by a peer, on the same kind of database."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings

from benchmarks import chain, fanout
from benchmarks.databases import database_beside, kind_of
from benchmarks.figures import print_figure
from benchmarks.ground import plan_runs
from benchmarks.peers.environments import PeerProcess, started


def chain_ratio(runs: int) -> list[float]:
    """Print the milliseconds per step of both; return the ratio of Toolgate to LangGraph for each round."""
    with _peer_on_own_database("langgraph", "langgraph_chain.py", chain.STEPS) as peer:
        return _ratios("langgraph", chain.steps(), peer, runs)


def fanout_ratio(runs: int) -> list[float]:
    """Print the milliseconds per step of both; return the ratio of Toolgate to DBOS for each round."""
    with _peer_on_own_database("dbos", "dbos_fanout.py", fanout.STEPS) as peer:
        return _ratios("dbos", fanout.steps(), peer, runs)


def _ratios(name: str, steps: Sequence[dict[str, Any]], peer: PeerProcess, runs: int) -> list[float]:
    with plan_runs(list(steps)) as run:
        peer.measure()  # the peer warms up too
        rounds = [(run(), peer.measure() / len(steps)) for _ in range(runs)]
    print_figure(f"{name}_toolgate_ms_per_step", [own for own, _ in rounds], "ms")
    print_figure(f"{name}_ms_per_step", [other for _, other in rounds], "ms")
    return [own / other for own, other in rounds]


@contextmanager
def _peer_on_own_database(name: str, script: str, steps: int) -> Iterator[PeerProcess]:
    """Start a peer on its own database: a file in the same folder as Toolgate's, or a database on the same server."""
    url = os.environ["DATABASE_URL"]
    if kind_of(url) == "sqlite":
        folder = Path(settings.TOOLGATE_WORKSPACE).parent
        with started(name, script, f"sqlite:///{folder / f'{name}.sqlite3'}", str(steps)) as peer:
            yield peer
        return
    with database_beside(url, f"{name}_bench_{os.getpid()}") as own, started(name, script, own, str(steps)) as peer:
        yield peer
