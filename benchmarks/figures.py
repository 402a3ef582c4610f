"""The list of figures; as a program, measures and prints one of them."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles

import django

from benchmarks.databases import kind_of

ROOT = Path(__file__).resolve().parent.parent
Measure = Callable[[int], list[float]]
"""Takes the number of runs and returns the values of all of them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: module and function that measure it, the statistic that counts (`value`), and its settings.

    `only` names the one kind of database that it applies to; empty for all.
    """

    name: str
    module: str
    unit: str = "ms"
    value: str = "median"
    function: str = "measure"
    settings: Mapping[str, str] = field(default_factory=dict)
    only: str = ""

    def print(self, runs: int) -> None:
        measure: Measure = getattr(import_module(f"benchmarks.{self.module}"), self.function)
        print_figure(self.name, measure(runs), self.unit, self.value)


def print_figure(name: str, values: list[float], unit: str, value: str = "median") -> None:
    """Print one figure as a line of JSON; `value` names the statistic that counts: median, p95, p99 or max."""
    found = {"median": round(median(values), 3), "p95": round(percentile(values, 95), 3), "n": len(values)}
    kind = kind_of(os.environ["DATABASE_URL"])
    counts = found | {"p99": round(percentile(values, 99), 3), "max": round(max(values), 3)}
    line = {"name": name, "value": counts[value], "unit": unit, **found, "database": kind}
    print(json.dumps(line), flush=True)


MANY_WAIT = {"TOOLGATE_MAX_PENDING_PER_REQUESTER": "0"}
"""One requester may have any number of waiting requests."""

AT_ONCE = {**MANY_WAIT, "TOOLGATE_UNDO_SECONDS": "0"}
"""Decisions take effect without an undo window."""

LOCAL_UPSTREAM = {"TOOLGATE_EGRESS_ALLOW": "127.0.0.1"}
"""Requests may reach a server on this machine."""

WORKSPACE_TOOLS = {"TOOLGATE_TOOLS": "benchmarks.tools,catalog.toolsets.workspace"}

FIGURES = (
    Figure("chain_ms_per_step", "chain"),
    Figure("chain_ms_per_step_normal", "chain", settings={"TOOLGATE_SQLITE_SYNCHRONOUS": "NORMAL"}, only="sqlite"),
    Figure("chain_bare_ms_per_step", "bare"),
    Figure("chain_ratio", "bare", unit="", function="chain_ratio"),
    Figure("chain_ratio_langgraph", "peers.plans", unit="", function="chain_ratio"),
    Figure("fanout_ms_per_step", "fanout"),
    Figure("fanout_ratio", "bare", unit="", function="fanout_ratio"),
    Figure("fanout_ratio_dbos", "peers.plans", unit="", function="fanout_ratio"),
    Figure("direct_call_ms", "direct_call"),
    *(
        Figure(f"calls_per_s_{clients}", "direct_call", unit="calls/s", function=f"calls_per_s_{clients}")
        for clients in (1, 4, 16)
    ),
    Figure("mcp_call_ms", "mcp_call"),
    Figure("mcp_call_ratio_oauth", "mcp_call", unit="", function="oauth_ratio"),
    Figure("mcp_calls_per_s", "mcp_call", unit="calls/s", function="per_second"),
    Figure("mcp_call_ratio_agentbarrier", "peers.mcp_servers", unit="", function="call_ratio"),
    Figure("mcp_rate_ratio_agentbarrier", "peers.mcp_servers", unit="", function="rate_ratio"),
    Figure("mcp_upstream_ms", "upstream", settings=LOCAL_UPSTREAM),
    Figure("mcp_upstream_per_s", "upstream", unit="calls/s", settings=LOCAL_UPSTREAM, function="per_second"),
    Figure("decide_to_start_ms", "decide_to_start", value="p95", settings=AT_ONCE),
    Figure("decide_to_screen_ms", "decide_to_screen", value="p95"),
    Figure("catalog_page_ms", "catalog_page", value="p95"),
    Figure("jump_ms", "jump", value="p95"),
    Figure("fanout_sockets_ms", "fanout_sockets", value="p99"),
    Figure("fanout_cpu_ms", "fanout_sockets", function="processor_time"),
    Figure("watching_cpu_ms", "fanout_sockets", function="idle_processor_time"),
    Figure("socket_kib", "fanout_sockets", unit="KiB", function="memory"),
    Figure("plan_page_ms", "plan_page", value="p95"),
    Figure("first_paint_ms", "plan_in_browser", function="first_paint"),
    Figure("task_ms", "plan_in_browser", value="max", function="longest_tasks"),
    Figure("task_cpu_ms", "plan_in_browser", value="max", function="longest_processor_times"),
    Figure("queue_page_ms", "queue_page", value="p95"),
    Figure("home_page_ms", "home_page", value="p95"),
    Figure("home_page_kb", "home_page", unit="kB", value="max", function="measure_size"),
    Figure("request_page_ms", "request_page", value="p95", settings=WORKSPACE_TOOLS),
    Figure(
        "request_page_kb",
        "request_page",
        unit="kB",
        value="max",
        function="measure_size",
        settings=WORKSPACE_TOOLS,
    ),
    Figure("waiting_cost", "waiting_cost", unit="MiB", settings=MANY_WAIT),
    Figure("waiting_threads", "waiting_cost", unit="threads", settings=MANY_WAIT, function="threads"),
    Figure("serve_rss_mib", "serve", unit="MiB", function="rss"),
    Figure("serve_ready_s", "serve", unit="s", function="ready"),
    Figure("check_invariants_s", "check_invariants", unit="s"),
    Figure("audit_append_ms", "audit"),
    Figure("audit_verify_per_s", "audit", unit="entries/s", function="verify_per_s"),
    Figure("fsync_ms", "fsync"),
    Figure("validate_us", "validate", unit="us"),
    Figure("policy_us", "policies", unit="us"),
    Figure("policy_recent_us", "policies", unit="us", function="measure_recent"),
    Figure("policy_plain_us", "policies", unit="us", function="measure_plain"),
    Figure("validator_us", "validator", unit="us"),
    Figure("hostile_ms", "hostile", value="max"),
)


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    wanted = next(figure for figure in FIGURES if figure.name == sys.argv[1])
    wanted.print(runs=int(sys.argv[2]))
