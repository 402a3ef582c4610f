"""A chain in LangGraph: a node for each step, a checkpoint stored before the next one begins (`durability="sync"`).

Runs in LangGraph's environment: `langgraph_chain.py DATABASE_URL STEPS`. For each line on standard input it prints the
milliseconds of one run. SQLite is opened with a write-ahead log and full synchronisation, as Toolgate opens it.
"""

import sqlite3
import sys
from time import perf_counter
from typing import Any, TypedDict
from uuid import uuid4

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row


class State(TypedDict):
    """The number of the last step."""

    number: int


def step(state: State) -> State:
    """Do nothing but count."""
    return {"number": state["number"] + 1}


def open_saver(url: str) -> Any:
    saver: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        saver = SqliteSaver(connection)
    else:
        saver = PostgresSaver(psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row))
    saver.setup()
    return saver


def build_chain(steps: int, saver: Any) -> Any:
    """Return the compiled graph: a chain of this many nodes."""
    graph = StateGraph(State)
    names = [f"step_{number}" for number in range(1, steps + 1)]
    for name in names:
        graph.add_node(name, step)
    for first, second in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(first, second)
    return graph.compile(checkpointer=saver)


def main() -> None:
    """Run the chain once for each line on standard input."""
    steps = int(sys.argv[2])
    chain = build_chain(steps, open_saver(sys.argv[1]))
    for _ in sys.stdin:
        config = {"configurable": {"thread_id": uuid4().hex}, "recursion_limit": steps + 10}
        began = perf_counter()
        found = chain.invoke({"number": 0}, config, durability="sync")
        milliseconds = (perf_counter() - began) * 1000
        if found["number"] != steps:
            raise RuntimeError(f"The chain ended with {found}.")
        print(milliseconds, flush=True)


if __name__ == "__main__":
    main()
