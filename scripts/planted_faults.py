"""Mutation check: the fast tier must find at least 38 of the 40 faults in `planted_faults.toml`.

Run it as `python scripts/planted_faults.py` with the interpreter that runs the tests, whenever tests are deleted or
moved to another tier. It copies the tracked files of this checkout to a temporary folder and never changes the checkout
itself. There it plants one fault at a time, runs the tests that are most likely to fail and, if they pass, the entire
fast tier, then restores the file. It prints one line per fault: the first test that failed, MISSED, or HANGS if the
tests do not end, which does not count as found, because no test names the fault. A fault whose old text does not occur
exactly once, or whose tests do not exist, is an error: the record must follow the code. The exit status is 1 if fewer
than 38 faults are found (with --area or --name: if one is not), or if one could not be planted.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
RECORDS = Path(__file__).with_suffix(".toml")
NEEDED = 38
PYTEST = ["-m", "pytest", "-x", "-q", "-m", "not (service or slow or layout or nightly)"]
WHOLE_TIER = ["-n", "2", "--dist", "worksteal", "--ignore", "tests/house", "tests"]
PASSED, FAILED, NOTHING_COLLECTED = 0, 1, 5
SECONDS = 900
"""Time after which a run of pytest counts as hanging."""
FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class OutOfDate(Exception):
    """A fault no longer matches the code or its tests."""


class Hangs(Exception):
    """The tests of a fault do not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One small mistake: `old` becomes `new` in the file at `path`; `tests` are paths or ids, the narrowest first."""

    name: str
    area: str
    path: str
    old: str
    new: str
    why: str
    tests: Sequence[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one fault: `word` is found, MISSED, HANGS or ERROR; `text` is the failed test or the reason."""

    word: str
    text: str = ""


def planted_code(fault: Fault, root: Path) -> tuple[str, str]:
    """Return the file's text without and with the fault. Raises OutOfDate."""
    path = root / fault.path
    if not path.is_file():
        raise OutOfDate(f"{fault.path} does not exist")
    missing = [each for each in fault.tests if not (root / each.partition("::")[0]).exists()]
    if missing:
        raise OutOfDate(f"{', '.join(missing)} does not exist")
    text = path.read_text(encoding="utf-8")
    count = text.count(fault.old)
    if count != 1:
        raise OutOfDate(f"its old text occurs {count} times in {fault.path}, not once")
    changed = text.replace(fault.old, fault.new)
    try:
        compile(changed, fault.path, "exec")
    except SyntaxError as error:
        raise OutOfDate(f"{fault.path} with the fault is not valid Python: {error}") from None
    return text, changed


@contextmanager
def planted(fault: Fault, root: Path) -> Iterator[None]:
    """Plant a fault, and restore the file at the end. Raises OutOfDate."""
    text, changed = planted_code(fault, root)
    write(root / fault.path, changed)
    try:
        yield
    finally:
        write(root / fault.path, text)


def write(path: Path, text: str) -> None:
    """Write a module and delete its bytecode, which looks current if size and second of the change are the same."""
    path.write_text(text, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def first_failure(root: Path, tests: Sequence[str]) -> str | None:
    """Run tests of the fast tier on SQLite; return the id of the first failing one, or None.

    Raises OutOfDate if pytest cannot run them, and Hangs if it does not end.
    """
    environment = {**os.environ, "DATABASE_URL": "", "REDIS_URL": ""}
    environment.pop("TOOLGATE_NIGHTLY", None)
    try:
        run = subprocess.run(
            [sys.executable, *PYTEST, *tests],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Hangs(f"no end within {SECONDS} s") from None
    if run.returncode in (PASSED, NOTHING_COLLECTED):
        return None
    failure = FIRST_FAILURE.search(run.stdout)
    if failure is not None:
        return failure[1]
    if run.returncode == FAILED:
        return "pytest ended without naming a test"
    raise OutOfDate(f"pytest ended with status {run.returncode}: {(run.stderr or run.stdout).strip()[-500:]}")


def judge(fault: Fault, root: Path, *, likely_only: bool) -> Verdict:
    """Plant a fault and run the tests."""
    try:
        with planted(fault, root):
            failure = first_failure(root, fault.tests)
            if failure is None and not likely_only:
                failure = first_failure(root, WHOLE_TIER)
    except OutOfDate as error:
        return Verdict("ERROR", str(error))
    except Hangs as error:
        return Verdict("HANGS", str(error))
    return Verdict("MISSED", fault.why) if failure is None else Verdict("found", failure)


def copy_checkout(root: Path) -> None:
    """Copy the tracked files of the checkout, including uncommitted changes."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)


def read_faults(areas: Sequence[str], names: Sequence[str]) -> list[Fault]:
    """Return the faults of these areas and names; all of them without any."""
    faults = [Fault(**record) for record in tomllib.loads(RECORDS.read_text(encoding="utf-8"))["fault"]]
    unknown = {*areas, *names} - {each.area for each in faults} - {each.name for each in faults}
    if unknown:
        sys.exit(f"Unknown area or fault: {', '.join(sorted(unknown))}. --list prints all.")
    return [each for each in faults if each.area in areas or each.name in names or not (areas or names)]


def options() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description="Plant faults one by one and check that the fast tier finds them.")
    parser.add_argument("--area", action="append", default=[], help="only faults of this area; may be repeated")
    parser.add_argument("--name", action="append", default=[], help="only the fault of this name; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the faults, plant none")
    parser.add_argument("--likely-only", action="store_true", help="do not run the whole tier")
    parser.add_argument("--baseline", action="store_true", help="first check that the tests pass without a fault")
    return parser.parse_args()


def check(faults: Sequence[Fault], root: Path, *, needed: int, likely_only: bool) -> bool:
    """Plant the faults in turn and print the results; return whether enough are found and all could be planted."""
    words = []
    for fault in faults:
        began = monotonic()
        verdict = judge(fault, root, likely_only=likely_only)
        words.append(verdict.word)
        print(f"{verdict.word:<6} {fault.name:<27} {monotonic() - began:6.1f} s  {verdict.text}", flush=True)
    found = words.count("found")
    hanging = words.count("HANGS")
    print(f"{found} of {len(faults)} found" + (f", {hanging} hang" if hanging else ""))
    return found >= needed and "ERROR" not in words


def main() -> bool:
    """Run the check; return whether it passes."""
    asked = options()
    faults = read_faults(asked.area, asked.name)
    if asked.list:
        for fault in faults:
            print(f"{fault.area:<12} {fault.name:<27} {fault.path:<27} {fault.why}")
        return True
    with tempfile.TemporaryDirectory(prefix="planted-faults-") as folder:
        root = Path(folder)
        copy_checkout(root)
        if asked.baseline:
            likely = sorted({test for fault in faults for test in fault.tests})
            try:
                failure = first_failure(root, likely if asked.likely_only else WHOLE_TIER)
            except (Hangs, OutOfDate) as error:
                failure = str(error)
            print(f"without a fault: {failure or 'all pass'}", flush=True)
            if failure is not None:
                return False
        needed = len(faults) if asked.area or asked.name else NEEDED
        return check(faults, root, needed=needed, likely_only=asked.likely_only)


if __name__ == "__main__":
    sys.exit(not main())
