"""Prints the figures, one JSON object a line. Each is measured in a process and a database of its own.

They are measured on SQLite, or on the PostgreSQL server that DATABASE_URL names."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.databases import fresh_database, kind_of
from benchmarks.figures import FIGURES, ROOT, Figure

VAR = ROOT / "var"


def main() -> int:
    """Measure the named figures, or all of them; return 1 if any could not be measured."""
    options = _options()
    failed = [figure.name for figure in FIGURES if figure.name in options.names and not _measure(figure, options.runs)]
    if failed:
        print(f"Not measured: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    names = [figure.name for figure in FIGURES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(names)}; all of them without any")
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (5)")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(names))
    if unknown or options.runs < 1:
        parser.error(f"There is no figure {', '.join(unknown)}." if unknown else "--runs takes 1 or more.")
    options.names = options.names or names
    return options


def _measure(figure: Figure, runs: int) -> bool:
    """Measure one figure on a fresh database on the same disk or server as the real one; return False if it failed."""
    if figure.only not in ("", kind_of(os.environ.get("DATABASE_URL", ""))):
        return True
    VAR.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=VAR) as folder, fresh_database(Path(folder)) as url:
        command = [sys.executable, "-m", "benchmarks.figures", figure.name, str(runs)]
        (Path(folder) / "workspace").mkdir()
        environment = _environment(figure, Path(folder), url)
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)  # noqa: S603 - this very program
        return done.returncode == 0


def _environment(figure: Figure, folder: Path, url: str) -> dict[str, str]:
    return {
        "SECRET_KEY": "for-benchmarks-only-" * 3,
        "TOOLGATE_AUDIT_KEY": "for-benchmarks-only-" * 3,
        "TOOLGATE_SECRET_KEYS": "Zm9yLWJlbmNobWFya3Mtb25seS1mb3ItYmVuY2htYXI=",
        **{name: value for name, value in os.environ.items() if value},
        "DATABASE_URL": url,
        "TOOLGATE_TOOLS": "benchmarks.tools",
        "TOOLGATE_WORKSPACE": str(folder / "workspace"),
        "TOOLGATE_LOG_LEVEL": "WARNING",
        **figure.settings,
    }


if __name__ == "__main__":
    sys.exit(main())
