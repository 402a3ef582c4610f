"""`python -m benchmarks`: each figure is one JSON object a line, measured on a database of its own."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.figures import p95
from tests.house.source import ROOT

FIELDS = ["name", "value", "unit", "median", "p95", "n", "database"]


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the benchmarks as `make bench` does, on SQLite."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    environment = {**os.environ, "DATABASE_URL": ""}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name", ["chain_ms_per_step_normal", "direct_call_ms", "fsync_ms", "validate_us", "hostile_ms"]
)
def test_a_figure_is_one_line_of_json(name: str) -> None:
    """The line has the fields that are promised; what takes longer is left to `make bench`."""
    done = bench(name, "--runs", "1")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert list(found) == FIELDS
    assert found["name"] == name
    assert found["value"] > 0


@pytest.mark.parametrize("arguments", [["chain"], ["--runs", "0"]])
def test_what_is_not_there_is_refused(arguments: list[str]) -> None:
    """A misspelt name measures nothing."""
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")


def test_p95_is_what_95_of_100_do_not_exceed() -> None:
    """Also of a single value."""
    assert p95([float(number) for number in range(101)]) == 95.0
    assert p95([3.0]) == 3.0
