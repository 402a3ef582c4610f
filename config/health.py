"""Is this process up, and may it be sent work? For load balancers and people; no secrets, no sign-in."""

from collections.abc import Callable, Mapping

from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from catalog import snapshot
from plans import carriers

GOOD = "ok"


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer: the process is up."""
    return JsonResponse({"status": GOOD})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when the process may be sent work, else 503; `checks` says what is wrong."""
    checks = {name: check() for name, check in CHECKS.items()}
    ready = all(checks[name] == GOOD for name in REQUIRED)
    return JsonResponse({"ready": ready, "checks": checks}, status=200 if ready else 503)


def _database() -> str:
    try:
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "cannot be reached"
    return GOOD


def _migrations() -> str:
    try:
        executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "unknown"
    return f"{len(missing)} to be applied" if missing else GOOD


def _tools() -> str:
    """Say which tools are other code here than in the catalog: their calls are left to other processes."""
    try:
        drifted = sorted(name for name, tool in snapshot.all_current().items() if tool.drifted)
    except DatabaseError:
        return "unknown"
    return f"drifted: {', '.join(drifted)}" if drifted else GOOD


def _executor() -> str:
    """Say whether a thread is left to execute plans, where this process is one that does."""
    return GOOD if carriers.can_execute() or not carriers.executes() else "no thread is left; see late_tools"


def _late_tools() -> str:
    """Say which tools are past their time and still keep threads; end them, or this process."""
    late = carriers.late_tools()
    return f"keep {len(late)} threads: {', '.join(sorted(set(late)))}" if late else GOOD


CHECKS: Mapping[str, Callable[[], str]] = {
    "database": _database,
    "migrations": _migrations,
    "tools": _tools,
    "executor": _executor,
    "late_tools": _late_tools,
}
REQUIRED = ("database", "migrations", "executor")
