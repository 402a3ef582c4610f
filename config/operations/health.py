"""Health for load balancers and people: no secrets, no names, no sign-in.

Is this process up, and may it be sent work? What the database answers is found once a second at most, in a thread that
may hang: a storm of probes costs one look, and a database that does not answer keeps neither a probe nor a web thread.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar
from urllib.parse import quote

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from approvals.audit.checkpoints import is_disk_full
from approvals.audit.restore_guard import checkpoint_write_fault, detect_restore, restart_reason
from approvals.audit.verification import chain_end_fault
from catalog.core import clock
from catalog.core.tracing import log_extra
from catalog.inventory import snapshot
from plans.engine import hints
from plans.executor import heartbeats

ValueT = TypeVar("ValueT")
PROBE_CACHE_SECONDS = 1.0
PROBE_TIMEOUT_SECONDS = 1.5


class CachedProbe(Generic[ValueT]):
    """What `look` finds, at most `keep` seconds old."""

    def __init__(self, look: Callable[[], ValueT], keep: float = PROBE_CACHE_SECONDS) -> None:
        self._look = look
        self._keep = keep
        self._lock = threading.Lock()
        self._found: Future[ValueT] | None = None
        self._begun = float("-inf")

    def get(self) -> ValueT | None:
        """Return what was found; None when it could not be, or not within `PATIENCE_SECONDS`."""
        try:
            return self._looking().result(PROBE_TIMEOUT_SECONDS)
        except (TooLong, Exception):  # noqa: BLE001 - what cannot be found is what the caller tells
            return None

    def forget(self) -> None:
        """Look anew when next asked."""
        with self._lock:
            self._begun = float("-inf")

    def _looking(self) -> "Future[ValueT]":
        with self._lock:
            if self._found is not None and (not self._found.done() or monotonic() < self._begun + self._keep):
                return self._found
            self._found, self._begun = Future(), monotonic()
            threading.Thread(target=self._find, args=[self._found], name="toolgate-look", daemon=True).start()
            return self._found

    def _find(self, found: "Future[ValueT]") -> None:
        try:
            found.set_result(self._look())
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            found.set_exception(error)
        finally:
            connection.close()


log = logging.getLogger("toolgate.health")
OK = "ok"
UNKNOWN_RESULT = "unknown while the database does not answer"
MAX_CLOCK_SKEW_SECONDS = 5.0
MIGRATIONS_SHOWN = 3
TRANSIENT_WRITE_ERRORS = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_ERROR")
"""Why a write fails that the file would take: another is writing, or its tables are not there yet."""


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer: the process is up. Asks nothing of anyone."""
    return JsonResponse({"status": OK})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when the process may be sent work, else 503; `checks` says what is wrong and what to do."""
    found = _database_probe.get() or {"database": "does not answer in time: see that it runs and can be reached"}
    checks = {name: found.get(name, UNKNOWN_RESULT) for name in DATABASE_CHECKS}
    checks |= {name: check() for name, check in PROCESS_CHECKS.items()}
    ready = all(checks[name] == OK for name in REQUIRED_CHECKS)
    _log_changes(sorted(name for name, answer in checks.items() if answer != OK))
    return JsonResponse({"ready": ready, "checks": checks}, status=200 if ready else 503)


def _log_changes(failing: list[str]) -> None:
    """Log which checks fail when others do than before: probes ask every few seconds."""
    if failing != _last_state.get("failing", []):
        _last_state["failing"] = failing
        words, level = ("checks fail", logging.WARNING) if failing else ("every check is good again", logging.INFO)
        log.log(level, words, extra=log_extra(checks=",".join(failing)))


def _run_database_checks() -> dict[str, str]:
    """Ask the database everything, unless its own check fails: then the others cannot be known."""
    answers: dict[str, str] = {}
    for name, check in DATABASE_CHECKS.items():
        try:
            answers[name] = check()
        except DatabaseError:
            answers[name] = UNKNOWN_RESULT
        if name == "database" and answers[name] != OK:
            break
    return answers


def _check_database() -> str:
    try:
        writable = _file_takes_writes() if settings.ON_SQLITE else _server_takes_writes()
    except DatabaseError:
        return "cannot be reached: see that it runs, and that DATABASE_URL names it"
    if settings.ON_SQLITE and _disk_is_full():
        return "takes no writes: the disk of its file is full; free space on it"
    return OK if writable else "takes no writes: it is read-only, a standby, or its disk is full"


def _disk_is_full() -> bool:
    """Say whether the disk of the database's file is full: a write that is rolled back need not find out."""
    try:
        return is_disk_full(os.statvfs(Path(connection.settings_dict["NAME"]).parent))
    except OSError:
        return False


def _server_takes_writes() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('transaction_read_only') = 'off' AND NOT pg_is_in_recovery()")
        return bool(cursor.fetchone()[0])


def _file_takes_writes() -> bool:
    """Say whether the file takes a write, by one that is rolled back; who finds another writing need not try.

    A connection of its own: one that is open does not notice that the file has gone or may be written no more.
    Raises DatabaseError when there is no such file.
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


def _check_migrations() -> str:
    """Name migrations that are missing; once none is, this process does not look again."""
    if _last_state.get("migrations"):
        return OK
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        names = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in missing[:MIGRATIONS_SHOWN])
        more = ", …" if len(missing) > MIGRATIONS_SHOWN else ""
        return f"{len(missing)} to be applied ({names}{more}): run manage.py migrate"
    _last_state["migrations"] = True
    return OK


def _check_audit() -> str:
    """Say whether the audit log ends where its head and its checkpoints say; `verify_audit` looks at all of it."""
    fault = chain_end_fault()
    if fault:
        return f"{fault}: start nothing dangerous, keep the database as it is, run manage.py verify_audit"
    return detect_restore() or restart_reason() or checkpoint_write_fault() or OK


def _check_clock() -> str:
    """Say whether this machine's clock agrees with the database's, to which Toolgate keeps in any case."""
    apart = abs(clock.offset_seconds())
    return OK if apart < MAX_CLOCK_SKEW_SECONDS else f"{apart:.0f} s from the database's: set this machine's clock"


def _check_tools() -> str:
    """Say how many tools are other code here than in the catalog: their calls are left to other processes."""
    count = sum(1 for tool in snapshot.callable_tools().values() if tool.drifted)
    return f"{count} drifted: restart this process, or run manage.py sync_tools, which names them" if count else OK


def _check_cluster() -> str:
    """Say whether anyone executes plans, here or elsewhere."""
    return (
        OK
        if hints.has_executor() or heartbeats.live_executors()
        else "nobody executes plans: start a worker, or a server"
    )


def _check_executor() -> str:
    """Say whether a thread is left to execute plans, where this process is one that does."""
    if hints.can_execute() or not hints.has_executor():
        return OK
    return "no thread is left: tools past their time keep them; restart this process"


def _check_late_tools() -> str:
    """Say how many threads are kept by tools past their time; the log names the tools."""
    count = len(hints.late_tools())
    return f"keep {count} threads: see the log for which, and mend them" if count else OK


_last_state: dict[str, object] = {}
DATABASE_CHECKS: Mapping[str, Callable[[], str]] = {
    "database": _check_database,
    "migrations": _check_migrations,
    "audit": _check_audit,
    "clock": _check_clock,
    "tools": _check_tools,
    "cluster": _check_cluster,
}
PROCESS_CHECKS: Mapping[str, Callable[[], str]] = {"executor": _check_executor, "late_tools": _check_late_tools}
REQUIRED_CHECKS = ("database", "migrations", "audit", "executor")
_database_probe = CachedProbe(_run_database_checks)
