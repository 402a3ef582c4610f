"""Health checks `/healthz` (liveness) and `/readyz` (readiness): no secrets, no names, no sign-in.

Database queries run in a background thread, so that a slow database blocks neither probes nor web threads.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar
from urllib.parse import quote

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from approvals.audit.checkpoint_file import is_disk_full
from approvals.audit.checkpoints import checkpoint_write_fault
from approvals.audit.restore_guard import detect_restore, restart_reason
from approvals.audit.verification import chain_end_fault
from catalog.core import clock
from catalog.core.tracing import log_extra
from catalog.inventory import snapshot
from plans.engine import hints
from plans.executor import heartbeats
from toolgate.places import COMMAND

ValueT = TypeVar("ValueT")
PROBE_CACHE_SECONDS = 1.0
PROBE_TIMEOUT_SECONDS = 1.5


class CachedProbe(Generic[ValueT]):
    """Calls a function at most once in `keep` seconds, and returns the cached result in between."""

    def __init__(self, look: Callable[[], ValueT], keep: float = PROBE_CACHE_SECONDS) -> None:
        self._look = look
        self._keep = keep
        self._lock = threading.Lock()
        self._found: Future[ValueT] | None = None
        self._begun = float("-inf")

    def get(self) -> ValueT | None:
        """Return the result, or None if the function failed or exceeded `PROBE_TIMEOUT_SECONDS`."""
        with self._lock:
            found = self._found
            if found is None or (found.done() and monotonic() >= self._begun + self._keep):
                found = self._found = Future()
                self._begun = monotonic()
                threading.Thread(target=self._find, args=[found], name="toolgate-look", daemon=True).start()
        try:
            return found.result(PROBE_TIMEOUT_SECONDS)
        except (TooLong, Exception):  # noqa: BLE001 - the caller reports a missing result
            return None

    def forget(self) -> None:
        with self._lock:
            self._begun = float("-inf")

    def _find(self, found: "Future[ValueT]") -> None:
        try:
            found.set_result(self._look())
        except BaseException as error:  # noqa: BLE001 - passed on to the waiting caller
            found.set_exception(error)
        finally:
            connection.close()


log = logging.getLogger("toolgate.health")
OK = "ok"
UNKNOWN_RESULT = "unknown while the database is unavailable"
MAX_CLOCK_SKEW_SECONDS = 5.0
MIGRATIONS_SHOWN = 3
TRANSIENT_WRITE_ERRORS = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_ERROR")
"""Errors of a write that are no fault of the file: another process is writing, or its tables do not exist yet."""


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200: the process is alive. Depends on nothing else."""
    return JsonResponse({"status": OK})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if the process may receive work, else 503; `checks` says what is wrong and how to correct it."""
    checks = run_checks()
    ready = all(checks[name] == OK for name in REQUIRED_CHECKS)
    failing = sorted(name for name, answer in checks.items() if answer != OK)
    if failing != _last_state.get("failing", []):
        _last_state["failing"] = failing
        words, level = ("checks fail", logging.WARNING) if failing else ("every check is good again", logging.INFO)
        log.log(level, words, extra=log_extra(checks=",".join(failing)))
    return JsonResponse({"ready": ready, "checks": checks}, status=200 if ready else 503)


def run_checks() -> dict[str, str]:
    """Return the answer of each check: OK, or the fault and its remedy. Takes at most `PROBE_TIMEOUT_SECONDS`."""
    found = _database_probe.get() or {"database": "does not answer in time. Check that it runs and is reachable."}
    checks = {name: found.get(name, UNKNOWN_RESULT) for name in DATABASE_CHECKS}
    return checks | {name: check() for name, check in PROCESS_CHECKS.items()}


def _run_database_checks() -> dict[str, str]:
    answers: dict[str, str] = {}
    for name, check in DATABASE_CHECKS.items():
        try:
            answers[name] = check()
        except DatabaseError:
            answers[name] = UNKNOWN_RESULT
        if name == "database" and answers[name] != OK:
            break
    return answers


_last_state: dict[str, object] = {}
DATABASE_CHECKS: dict[str, Callable[[], str]] = {}
PROCESS_CHECKS: dict[str, Callable[[], str]] = {}
REQUIRED_CHECKS = ("database", "migrations", "audit", "executor")


def _check_of(checks: dict[str, Callable[[], str]], name: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Add the decorated function to `checks`. It must return OK, or a description of what is wrong."""

    def add(check: Callable[[], str]) -> Callable[[], str]:
        checks[name] = check
        return check

    return add


@_check_of(DATABASE_CHECKS, "database")
def _check_database() -> str:
    try:
        writable = _file_takes_writes() if settings.ON_SQLITE else _server_takes_writes()
    except DatabaseError:
        return "unreachable. Check that it runs, and check DATABASE_URL."
    with suppress(OSError):
        # A rolled-back write may not reveal a full disk.
        if settings.ON_SQLITE and is_disk_full(os.statvfs(Path(connection.settings_dict["NAME"]).parent)):
            return "not writable: the disk of its file is full. Free some space."
    return OK if writable else "not writable: it is read-only, a standby, or its disk is full."


def _server_takes_writes() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('transaction_read_only') = 'off' AND NOT pg_is_in_recovery()")
        return bool(cursor.fetchone()[0])


def _file_takes_writes() -> bool:
    """Return whether the file is writable; skipped while another process writes. Raises DatabaseError without a file.

    Uses a new connection, because an open connection does not notice that the file was deleted or became read-only.
    """
    name = str(connection.settings_dict["NAME"])
    try:
        file = sqlite3.connect(f"file:{quote(name)}?mode=rw", uri=True, timeout=0, isolation_level=None)
    except sqlite3.Error as error:
        raise DatabaseError from error
    try:
        file.execute("BEGIN IMMEDIATE")
        file.execute("UPDATE approvals_instance SET epoch = epoch")
        file.execute("ROLLBACK")
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorname", "").startswith(TRANSIENT_WRITE_ERRORS)
    finally:
        file.close()
    return True


@_check_of(DATABASE_CHECKS, "migrations")
def _check_migrations() -> str:
    """Describe missing migrations; once there are none, this process does not check again."""
    if _last_state.get("migrations"):
        return OK
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        names = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in missing[:MIGRATIONS_SHOWN])
        more = ", …" if len(missing) > MIGRATIONS_SHOWN else ""
        return f"{len(missing)} not applied ({names}{more}). Run {COMMAND} migrate."
    _last_state["migrations"] = True
    return OK


@_check_of(DATABASE_CHECKS, "audit")
def _check_audit() -> str:
    """Check that the audit log ends where its head and checkpoints say; `verify_audit` checks all of it."""
    fault = chain_end_fault()
    if fault:
        return f"{fault}. Start nothing dangerous, keep the database unchanged, and run {COMMAND} verify_audit."
    return detect_restore() or restart_reason() or checkpoint_write_fault() or OK


@_check_of(DATABASE_CHECKS, "clock")
def _check_clock() -> str:
    apart = abs(clock.offset_seconds())
    return OK if apart < MAX_CLOCK_SKEW_SECONDS else f"{apart:.0f} s from the database's. Set this machine's clock."


@_check_of(DATABASE_CHECKS, "tools")
def _check_tools() -> str:
    """Say how many tools have other code here than in the catalog; this process leaves their calls to others."""
    count = sum(1 for tool in snapshot.callable_tools().values() if tool.drifted)
    return (f"{count} drifted. Restart this process, or run {COMMAND} sync_tools, which lists them.") if count else OK


@_check_of(DATABASE_CHECKS, "cluster")
def _check_cluster() -> str:
    return (
        OK
        if hints.has_executor() or heartbeats.live_executors()
        else "no process executes plans. Start a worker or a server."
    )


@_check_of(PROCESS_CHECKS, "executor")
def _check_executor() -> str:
    if hints.can_execute() or not hints.has_executor():
        return OK
    return "no free threads: tools past their deadline occupy them. Restart this process."


@_check_of(PROCESS_CHECKS, "late_tools")
def _check_late_tools() -> str:
    """Say how many threads are occupied by tools past their deadline; the log names these tools."""
    count = len(hints.late_tools())
    return f"occupy {count} threads. The log names the tools to fix." if count else OK


_database_probe = CachedProbe(_run_database_checks)
