"""Tools that clients run themselves, as rows: the first question about a tool makes its source and the tool."""

import re
from dataclasses import replace

from django.contrib.auth.models import User

from catalog import signals
from catalog.client_tools.known_tools import client_title, known_tool
from catalog.core import clock
from catalog.core.rate_limits import RateLimitKey, acquire_use, parse_rate_limits
from catalog.definitions.levels import SafetyLevel
from catalog.errors import ParameterError, ToolDisabled, ToolError, field_error
from catalog.inventory import snapshot
from catalog.inventory.imported_tools import names_for, publish_changes, rows_by_upstream, take_up_definition
from catalog.inventory.snapshot import CallableTool
from catalog.inventory.sources import is_name_taken
from catalog.inventory.versions import catalog_write_lock, version_facts
from catalog.models import Call, Source, Tool
from catalog.sources.definitions import Definition, visible_text
from catalog.sources.loading import judge_definition
from catalog.sources.settings import settings_of
from catalog.states import CallStatus

CLIENT_NAME = re.compile(r"[a-z0-9-]{1,40}")
MAX_TOOL_NAME = 128
MAX_CLIENTS = 50
MAX_CLIENT_TOOLS = 300
"""Tools of one client."""
ALLOWANCE_SECONDS = 900.0
"""Time in seconds for which a client may run a call that was handed out, until its outcome counts as unknown."""
HARMLESS = "It touches only what the client keeps for itself, such as a to-do list."
UNKNOWN = "Tools of clients are dangerous until an administrator sets another level; policies see what each call does."
NEW_TOOLS = "client-tools"
NEW_TOOLS_RATE = "60/h"
"""Tools that the questions of one token or person may make."""
OPEN_SCHEMA = {"type": "object"}
"""Schema of a tool of which the catalog knows no fields."""
WAITING = (CallStatus.HELD, CallStatus.READY)


def check_client_names(client: str, tool: str) -> None:
    """Raise ParameterError unless these are names of a client and of one of its tools."""
    if not CLIENT_NAME.fullmatch(client):
        raise field_error("client", "invalid", "A client's name is 1 to 40 characters from a-z, 0-9 and '-'.")
    if not tool or len(tool) > MAX_TOOL_NAME or visible_text(tool) != tool or "\n" in tool:
        raise field_error("tool", "invalid", f"A tool's name is one line of 1 to {MAX_TOOL_NAME} visible characters.")


def find_client_tool(client: str, tool: str) -> CallableTool | None:
    """Return the catalog's tool for a client's own name of it; None if it has none yet."""
    found = (each for each in snapshot.callable_tools().values() if each.source == client)
    return next((each for each in found if each.tool.client_tool == tool), None)


def find_or_add_client_tool(client: str, tool: str, *, by: User, owner: str) -> CallableTool:
    """Return the catalog's tool for a client's own name of it; add it at the first question.

    It is dangerous, unless it is known to touch only what the client keeps for itself. Its schema is open. A tool that
    was added before its fields were known gets them, once none of its calls waits; level and overrides stay.

    `owner` (`token:ID` or `user:ID`) may cause NEW_TOOLS_RATE additions. Raises ParameterError for a name that is none,
    RateLimited, ToolDisabled if the client's source is disabled, and ToolError if the tool cannot be added.
    """
    check_client_names(client, tool)
    found = find_client_tool(client, tool)
    if found is not None and not (_lacks_fields(found, client) and _take_up_fields(found)):
        return found
    source = Source.objects.filter(name=client).first()
    _require_client_source(client, source)
    if source is None or tool not in rows_by_upstream(source, [tool]):
        acquire_use(RateLimitKey(NEW_TOOLS, parse_rate_limits(NEW_TOOLS_RATE, NEW_TOOLS), owner), now=clock.now())
        _add(client, tool, by)
    snapshot.drop_snapshot()
    found = find_client_tool(client, tool)
    if found is None:
        raise ToolError(f"The tool {tool} of {client} cannot be loaded. An administrator finds the reason in the log.")
    return found


def ensure_client_source(client: str, *, by: User) -> Source:
    """Return the source of a client, made if it is missing, in the caller's transaction with the catalog locked."""
    source = Source.objects.filter(name=client).first()
    _require_client_source(client, source)
    if source is not None:
        return source
    if is_name_taken(client):
        raise ToolError(f"There is a Python module called {client}. Use another name for the client.")
    if Source.objects.filter(kind=Source.Kind.CLIENT).count() >= MAX_CLIENTS:
        raise ToolError(f"There are {MAX_CLIENTS} clients, which is the maximum.")
    source = Source.objects.create(name=client, kind=Source.Kind.CLIENT)
    signals.record_fact("source.created", by=by, source=source.name, kind_of_source=source.kind, trusted=source.trusted)
    return source


def _require_client_source(client: str, source: Source | None) -> None:
    if source is None:
        return
    if source.kind != Source.Kind.CLIENT:
        raise ToolError(f"The name {client} belongs to another source. Use another name for the client.")
    if not source.enabled:
        raise ToolDisabled(f"The client {client} is disabled. An administrator can enable it on its page in Sources.")


def _definition(client: str, tool: str) -> Definition:
    known = known_tool(client, tool)
    is_harmless = known is not None and known.is_harmless
    runs_it = f"{client_title(client)} runs it itself."
    return Definition(
        kind="client",
        upstream=tool,
        title=tool if known else "",
        description=f"{known.description} {runs_it}" if known else f"{tool}, a tool of a client: {runs_it}",
        input_schema=dict(known.schema) if known else dict(OPEN_SCHEMA),
        safety_level=str(SafetyLevel.SAFE if is_harmless else SafetyLevel.DANGEROUS),
        why=HARMLESS if is_harmless else UNKNOWN,
        timeout=ALLOWANCE_SECONDS,
    )


def _lacks_fields(callable_tool: CallableTool, client: str) -> bool:
    known = known_tool(client, callable_tool.tool.client_tool)
    return known is not None and callable_tool.tool.input_schema == OPEN_SCHEMA != known.schema


def _take_up_fields(callable_tool: CallableTool) -> bool:
    """Give a stored tool the fields that are known by now; return whether it got them.

    Not while a call waits for a decision or to start: the approval is bound to the version. The level stays, since
    people may have relied on it; so do the overrides.
    """
    if Call.objects.filter(version__tool=callable_tool.tool_pk, status__in=WAITING).exists():
        return False
    with catalog_write_lock():
        tool_row = Tool.objects.select_related("source", "current_version").get(pk=callable_tool.tool_pk)
        stored = Definition.from_json(tool_row.definition or {})
        if stored.input_schema != OPEN_SCHEMA:
            return True  # another question has done it meanwhile
        known = _definition(tool_row.source.name, stored.upstream)
        definition = replace(known, safety_level=stored.safety_level, why=stored.why, timeout=stored.timeout)
        facts = take_up_definition(tool_row, definition)
        publish_changes([*facts, signals.Fact("tool.changed", data=version_facts(tool_row))], is_changed=True)
    return True


def _add(client: str, tool: str, by: User) -> None:
    definition = _definition(client, tool)
    with catalog_write_lock():
        source = ensure_client_source(client, by=by)
        if rows_by_upstream(source, [tool]):
            return  # another question has added it meanwhile
        problem = judge_definition("imported", definition, settings_of(source))
        if problem:
            raise ParameterError(problem)
        if source.tools.count() >= MAX_CLIENT_TOOLS:
            raise ToolError(f"{client} has {MAX_CLIENT_TOOLS} tools, which is the maximum. No tool was added.")
        name = names_for(source, [definition], {})[tool]
        tool_row = Tool.objects.create(name=name, source=source, definition=definition.as_json())
        take_up_definition(tool_row, definition)
        publish_changes([signals.Fact("tool.added", by=by, data=version_facts(tool_row))], is_changed=True)
