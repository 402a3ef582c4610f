"""`python -m benchmarks`: one JSON line a figure, each measured on a database of its own."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.figures import percentile
from tests.house.source import ROOT

FIELDS = ["name", "value", "unit", "median", "p95", "n", "database"]
SHORT = ["chain_ms_per_step_normal", "direct_call_ms", "fsync_ms", "validate_us", "hostile_ms"]
"""The figures that are measured quickly; `make bench` runs all."""


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the benchmarks as `make bench` does, on SQLite."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    environment = {**os.environ, "DATABASE_URL": ""}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_each_figure_is_one_line_of_json() -> None:
    """Each line has the documented fields and a value."""
    done = bench(*SHORT, "--runs", "1")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(each["name"] for each in found) == sorted(SHORT)
    assert all(list(each) == FIELDS for each in found)
    assert all(each["value"] > 0 for each in found)


@pytest.mark.parametrize("arguments", [["chain"], ["--runs", "0"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    """Nothing is measured for an unknown name or without runs."""
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")


def test_percentile_is_not_exceeded_by_95_of_100_values() -> None:
    """Also of a single value."""
    assert percentile([float(number) for number in range(101)], 95) == 95.0
    assert percentile([3.0], 99) == 3.0
