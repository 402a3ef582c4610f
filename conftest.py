"""Test environment: Chromium, PostgreSQL and Redis.

A test marked `browser` or `service` is skipped if that is missing, or fails if it is required.
"""

import gc
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper as PostgreSQL
from django.test import TransactionTestCase
from django.utils.module_loading import import_string
from hypothesis import settings as hypothesis_settings
from pytest_django.plugin import DjangoDbBlocker

from tests import counts, migrated, rows

# No deadline, because the time of an example depends on the machine. The same examples are drawn each time, so that an
# unrelated change does not fail on a new one; `make nightly` draws new ones, and more.
hypothesis_settings.register_profile(
    "house", deadline=None, derandomize=not counts.FULL, max_examples=100 if counts.FULL else 25
)
hypothesis_settings.load_profile("house")
gc.disable()  # until all tests are collected: nothing of them is garbage
WORKER = "PYTEST_XDIST_WORKER"
"""Set in each worker process of a test run."""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The first one needs a third less CPU time: the same engine without a window."""


def find_chromium() -> str | None:
    """Return the path of the system's Chromium, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def find_services() -> str | None:
    """Return the database's URL if the suite runs on PostgreSQL and Redis, or None."""
    url = os.environ.get("DATABASE_URL", "")
    return url if url.startswith("postgres") and os.environ.get("REDIS_URL") else None


OFFERS: dict[str, tuple[Callable[[], str | None], str, str]] = {
    "browser": (find_chromium, "TOOLGATE_REQUIRE_BROWSER", "no Chromium was found"),
    "service": (find_services, "TOOLGATE_REQUIRE_SERVICES", "DATABASE_URL and REDIS_URL name no services"),
}


def is_required(marker: str) -> bool:
    """Return whether a skipped test of this kind counts as a failure."""
    return os.environ.get(OFFERS[marker][1], "") not in ("", "0")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser for tests marked `browser`."""
    return find_chromium() or pytest.fail("no Chromium was found; mark the test as browser")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder shared by all processes of a run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if WORKER in os.environ else own


@pytest.fixture(scope="session", name="migrated")
def migrated_file() -> Path:
    """A migrated SQLite file to copy, for a separate database."""
    return migrated.file()


@pytest.fixture(scope="session", autouse=True)
def no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust no certificate: reading those of the system takes each new HTTP client 20 ms, and no test needs one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@pytest.fixture(scope="session", autouse=True)
def static_files_found_once() -> Iterator[None]:
    """Let each test client reuse the static files found by the first one: finding them takes as long as a page."""
    middleware: Any = import_string("config.serving.static_files.StaticFiles")
    look = middleware.add_files_from_finders
    found: dict[str, Any] = {}

    def look_once(self: Any) -> None:
        if not found:
            look(self)
            found.update(self.files)
        self.files.update(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(middleware, "add_files_from_finders", look_once)
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Start each test process with a copy of one migrated database.

    Threads share the SQLite file, because a database in memory cannot be shared safely.
    """
    database = connections["default"]
    if not isinstance(database, PostgreSQL):
        database.settings_dict["TEST"]["NAME"] = str(tmp_path_factory.getbasetemp() / "database.sqlite3")
        creation: Any = database.creation
        creation._create_test_db = partial(copy_file, creation._create_test_db)
    elif WORKER in os.environ:
        database.settings_dict["TEST"]["TEMPLATE"] = migrated.template_in(shared)


def copy_file(make_empty: Callable[..., str], *args: Any, **kwargs: Any) -> str:
    """Create the test database as Django does, with the content of the migrated file."""
    name = str(make_empty(*args, **kwargs))
    shutil.copy(migrated.file(), name)
    return name


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Allow tests to empty the audit log, and avoid slow operations.

    At the end close all sessions: PostgreSQL does not drop a database that a finished test's thread holds open.
    """
    database = connections["default"]
    with django_db_blocker.unblock():
        let_audit_entries_go()
        first = rows.Kept(rows.read(apps.get_models(include_auto_created=True)))
        if isinstance(database, PostgreSQL):
            let_commits_be_lost(database)
    if isinstance(database, PostgreSQL):
        database.ops.sql_flush = deletions  # type: ignore[method-assign] # one database, one thread that empties it
    with pytest.MonkeyPatch.context() as patch:
        start_over_with(first, patch)
        yield
    if isinstance(database, PostgreSQL):
        with django_db_blocker.unblock():
            database.close_pool()
            end_sessions(database)


def let_audit_entries_go() -> None:
    """Drop the triggers that protect the audit log, and what migrations wrote into it; tests begin with an empty one.

    Tests of the triggers create them again.
    """
    of_table = " ON approvals_auditentry" if connections["default"].vendor == "postgresql" else ""
    with connections["default"].cursor() as cursor:
        cursor.execute(f"DROP TRIGGER IF EXISTS audit_entries_are_kept{of_table}")
        if of_table:
            cursor.execute("ALTER TABLE approvals_auditentry DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM approvals_auditentry")
        if of_table:
            cursor.execute("ALTER TABLE approvals_auditentry ENABLE TRIGGER USER")
        cursor.execute("UPDATE approvals_instance SET audit_seq = 0, audit_head = ''")


def start_over_with(first: rows.Kept, patch: pytest.MonkeyPatch) -> None:
    """Write the rows of the migrations again as soon as a committing test has emptied the tables.

    Not when the next such test begins: a process may then run tests that do not commit. Emptying the tables must send
    no signal, which would write some of the rows: see `tests.conftest`.
    """
    empty: Any = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined] # Django names no other place

    def start_over(case: TransactionTestCase) -> None:
        empty(case)
        first.write()

    patch.setattr(TransactionTestCase, "_fixture_teardown", start_over)
    patch.setattr(type(connections["default"].creation), "deserialize_db_from_string", lambda creation, data: None)


def let_commits_be_lost(database: PostgreSQL) -> None:
    """Turn off synchronous commits in the test database: only a crash of PostgreSQL itself loses commits."""
    name = database.ops.quote_name(database.settings_dict["NAME"])
    with database.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    # Open sessions started without it.
    database.close()
    database.close_pool()


def deletions(style: object, tables: Iterable[str], **kwargs: object) -> list[str]:
    """Return one statement that empties tables of a few rows: truncating all takes a hundred times as long.

    Foreign keys are checked at the end of the transaction. Single audit entries cannot be deleted.
    """
    kept = apps.get_model("approvals", "AuditEntry")._meta.db_table
    emptied = "".join(f'DELETE FROM "{table}"; ' for table in tables if table != kept)  # noqa: S608 (names of ours)
    return [f"DO $$ BEGIN IF EXISTS (SELECT FROM {kept}) THEN TRUNCATE {kept}; END IF; {emptied}END $$"]


def end_sessions(database: PostgreSQL) -> None:
    """End every session of the test database, from another connection."""
    sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    with database._nodb_cursor() as cursor:
        cursor.execute(sql, [database.settings_dict["NAME"]])


def pytest_sessionstart(session: pytest.Session) -> None:
    """Migrate the shared database while the worker processes collect tests."""
    if session.config.getoption("numprocesses", None) and WORKER not in os.environ:
        folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # pytest has no other way
        if migrated.is_for_postgresql():
            session.config.add_cleanup(partial(migrated.drop, migrated.template_name()))
        session.config.add_cleanup(migrated.make_ahead(folder))


def pytest_collection_finish() -> None:
    """Exclude objects that live until the end from garbage collection: thousands of tests and their imports.

    With few objects left, the collector would run all the time, so its thresholds are raised.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 100)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that this machine cannot run, unless they are required."""
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
    """Turn every skip of a required kind of test into a failure."""
    report = yield
    for marker in OFFERS:
        skipped = report.skipped and not hasattr(report, "wasxfail")
        if skipped and item.get_closest_marker(marker) and is_required(marker):
            report.outcome, report.longrepr = "failed", f"{OFFERS[marker][1]} is set, but: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of tests of each kind (CI requires some), and statistics of races and faults."""
    for marker in OFFERS:
        ran = sum(marker in report.keywords for report in terminalreporter.getreports("passed"))
        terminalreporter.write_line(f"{ran} {marker} test{'' if ran == 1 else 's'} ran")
    for outcome in ("passed", "failed"):
        counts.tell(terminalreporter.write_line, terminalreporter.getreports(outcome), passed=outcome == "passed")
