"""What this machine offers to the tests: Chromium, PostgreSQL and Redis.

A test marked `browser` or `service` is skipped where its machine is missing; where it is required, it fails.
"""

import os
import shutil
from collections.abc import Callable, Generator

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of the system's Chromium, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def find_services() -> str | None:
    """Return the database's URL when the suite runs on PostgreSQL and Redis, or None."""
    url = os.environ.get("DATABASE_URL", "")
    return url if url.startswith("postgres") and os.environ.get("REDIS_URL") else None


OFFERS: dict[str, tuple[Callable[[], str | None], str, str]] = {
    "browser": (find_chromium, "TOOLGATE_REQUIRE_BROWSER", "no Chromium was found"),
    "service": (find_services, "TOOLGATE_REQUIRE_SERVICES", "DATABASE_URL and REDIS_URL name no services"),
}


def is_required(marker: str) -> bool:
    """Say whether a skipped test of this kind is a failure."""
    return os.environ.get(OFFERS[marker][1], "") not in ("", "0")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser that tests marked `browser` drive."""
    return find_chromium() or pytest.fail("no Chromium was found; mark the test as browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, unless it must."""
    for marker, (find, _, reason) in OFFERS.items():
        if find() is not None or is_required(marker):
            continue
        for item in items:
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn every skip of a required kind of test into a failure, whoever asked for it."""
    report = yield
    for marker in OFFERS:
        skipped = report.skipped and not hasattr(report, "wasxfail")
        if skipped and item.get_closest_marker(marker) and is_required(marker):
            report.outcome, report.longrepr = "failed", f"{OFFERS[marker][1]} is set, but: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests of each kind ran: CI refuses none."""
    for marker in OFFERS:
        ran = sum(marker in report.keywords for report in terminalreporter.getreports("passed"))
        terminalreporter.write_line(f"{ran} {marker} test{'' if ran == 1 else 's'} ran")
