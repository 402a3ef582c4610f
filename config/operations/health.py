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

from approvals.audit.checkpoints import is_full
from approvals.audit.restore_guard import restored, shut, unwritable
from approvals.audit.verification import head_fault
from catalog.core import clock
from catalog.core.tracing import told
from catalog.inventory import snapshot
from plans.engine import hints
from plans.executor import heartbeats

ValueT = TypeVar("ValueT")
KEEP_SECONDS = 1.0
PATIENCE_SECONDS = 1.5


class Fresh(Generic[ValueT]):
    """What `look` finds, at most `keep` seconds old."""

    def __init__(self, look: Callable[[], ValueT], keep: float = KEEP_SECONDS) -> None:
        self._look = look
        self._keep = keep
        self._lock = threading.Lock()
        self._found: Future[ValueT] | None = None
        self._begun = float("-inf")

    def get(self) -> ValueT | None:
        """Return what was found; None when it could not be, or not within `PATIENCE_SECONDS`."""
        try:
            return self._looking().result(PATIENCE_SECONDS)
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
GOOD = "ok"
UNKNOWN = "unknown while the database does not answer"
MOST_SECONDS_APART = 5.0
SHOWN = 3
NOT_REFUSED = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_ERROR")
"""Why a write fails that the file would take: another is writing, or its tables are not there yet."""


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer: the process is up. Asks nothing of anyone."""
    return JsonResponse({"status": GOOD})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when the process may be sent work, else 503; `checks` says what is wrong and what to do."""
    found = _of_database.get() or {"database": "does not answer in time: see that it runs and can be reached"}
    checks = {name: found.get(name, UNKNOWN) for name in OF_DATABASE}
    checks |= {name: check() for name, check in OF_PROCESS.items()}
    ready = all(checks[name] == GOOD for name in REQUIRED)
    _tell_changes(sorted(name for name, answer in checks.items() if answer != GOOD))
    return JsonResponse({"ready": ready, "checks": checks}, status=200 if ready else 503)


def _tell_changes(failing: list[str]) -> None:
    """Log which checks fail when others do than before: probes ask every few seconds."""
    if failing != _seen.get("failing", []):
        _seen["failing"] = failing
        words, level = ("checks fail", logging.WARNING) if failing else ("every check is good again", logging.INFO)
        log.log(level, words, extra=told(checks=",".join(failing)))


def _look() -> dict[str, str]:
    """Ask the database everything, unless its own check fails: then the others cannot be known."""
    answers: dict[str, str] = {}
    for name, check in OF_DATABASE.items():
        try:
            answers[name] = check()
        except DatabaseError:
            answers[name] = UNKNOWN
        if name == "database" and answers[name] != GOOD:
            break
    return answers


def _database() -> str:
    try:
        writable = _file_takes_writes() if settings.ON_SQLITE else _server_takes_writes()
    except DatabaseError:
        return "cannot be reached: see that it runs, and that DATABASE_URL names it"
    if settings.ON_SQLITE and _disk_is_full():
        return "takes no writes: the disk of its file is full; free space on it"
    return GOOD if writable else "takes no writes: it is read-only, a standby, or its disk is full"


def _disk_is_full() -> bool:
    """Say whether the disk of the database's file is full: a write that is rolled back need not find out."""
    try:
        return is_full(os.statvfs(Path(connection.settings_dict["NAME"]).parent))
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
        return getattr(error, "sqlite_errorname", "").startswith(NOT_REFUSED)
    finally:
        file.close()
    return True


def _migrations() -> str:
    """Name migrations that are missing; once none is, this process does not look again."""
    if _seen.get("migrations"):
        return GOOD
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        names = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in missing[:SHOWN])
        more = ", …" if len(missing) > SHOWN else ""
        return f"{len(missing)} to be applied ({names}{more}): run manage.py migrate"
    _seen["migrations"] = True
    return GOOD


def _audit() -> str:
    """Say whether the audit log ends where its head and its checkpoints say; `verify_audit` looks at all of it."""
    fault = head_fault()
    if fault:
        return f"{fault}: start nothing dangerous, keep the database as it is, run manage.py verify_audit"
    return restored() or shut() or unwritable() or GOOD


def _clock() -> str:
    """Say whether this machine's clock agrees with the database's, to which Toolgate keeps in any case."""
    apart = abs(clock.offset_seconds())
    return GOOD if apart < MOST_SECONDS_APART else f"{apart:.0f} s from the database's: set this machine's clock"


def _tools() -> str:
    """Say how many tools are other code here than in the catalog: their calls are left to other processes."""
    count = sum(1 for tool in snapshot.all_current().values() if tool.drifted)
    return f"{count} drifted: restart this process, or run manage.py sync_tools, which names them" if count else GOOD


def _cluster() -> str:
    """Say whether anyone executes plans, here or elsewhere."""
    return (
        GOOD
        if hints.has_executor() or heartbeats.live_executors()
        else "nobody executes plans: start a worker, or a server"
    )


def _executor() -> str:
    """Say whether a thread is left to execute plans, where this process is one that does."""
    if hints.can_execute() or not hints.has_executor():
        return GOOD
    return "no thread is left: tools past their time keep them; restart this process"


def _late_tools() -> str:
    """Say how many threads are kept by tools past their time; the log names the tools."""
    count = len(hints.late_tools())
    return f"keep {count} threads: see the log for which, and mend them" if count else GOOD


_seen: dict[str, object] = {}
OF_DATABASE: Mapping[str, Callable[[], str]] = {
    "database": _database,
    "migrations": _migrations,
    "audit": _audit,
    "clock": _clock,
    "tools": _tools,
    "cluster": _cluster,
}
OF_PROCESS: Mapping[str, Callable[[], str]] = {"executor": _executor, "late_tools": _late_tools}
REQUIRED = ("database", "migrations", "audit", "executor")
_of_database = Fresh(_look)
