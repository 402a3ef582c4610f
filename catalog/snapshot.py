"""What this process may call right now: loaded tools joined with their rows, kept in memory.

Looked up on the hot path; read again when a second old and the catalog's revision has moved. Never writes.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django.db.models import QuerySet

from catalog import definitions
from catalog.models import CatalogState, Implementation, Tool
from catalog.registry import get_all_tools

SECONDS_TRUSTED = 1.0

LoadedTool = definitions.Tool[Any, Any]


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool as code and as rows; `drifted` when the loaded code is not what the rows say."""

    tool: LoadedTool
    tool_pk: int
    version_pk: int
    version_number: int
    fingerprint: str
    implementation_pk: int
    implementation_digest: str
    enabled: bool
    categories: frozenset[str]
    drifted: bool


@dataclass(frozen=True, slots=True)
class _View:
    revision: int = -1
    checked_at: float = float("-inf")
    tools: Mapping[str, CallableTool] = field(default_factory=dict)


_EMPTY = _View()
_view = _EMPTY
_reading = threading.Lock()


def current(name: str) -> CallableTool | None:
    """Return what may be called under `name`, or None when no loaded tool has rows under it."""
    view = _view
    if monotonic() - view.checked_at > SECONDS_TRUSTED:
        view = _look_again()
    return view.tools.get(name)


def all_current() -> Mapping[str, CallableTool]:
    """Return everything that may be called, by name."""
    view = _view
    if monotonic() - view.checked_at > SECONDS_TRUSTED:
        view = _look_again()
    return view.tools


def forget() -> None:
    """Read the rows again at the next look: this process has just written them."""
    global _view  # one reference, replaced whole: readers need no lock
    with _reading:
        _view = _EMPTY


def _look_again() -> _View:
    """Return a view that is fresh; one thread reads while the others go on with the old one."""
    global _view  # as above
    old = _view
    if not _reading.acquire(blocking=old is _EMPTY):
        return old
    try:
        if monotonic() - _view.checked_at > SECONDS_TRUSTED:
            _view = _read(_view)
        return _view
    finally:
        _reading.release()


def _read(old: _View) -> _View:
    now = monotonic()
    revision = CatalogState.objects.values_list("revision", flat=True).get(pk=1)
    if revision == old.revision:
        return _View(revision, now, old.tools)
    loaded = get_all_tools()
    rows = _rows().filter(name__in=loaded)
    joined = (_join(loaded[row.name], row) for row in rows)
    return _View(revision, now, {each.tool.name: each for each in joined if each is not None})


def _rows() -> QuerySet[Tool]:
    return (
        Tool.objects.filter(registered=True, current_version__isnull=False)
        .select_related("current_version")
        .prefetch_related("implementations", "categories")
    )


def _join(tool: LoadedTool, row: Tool) -> CallableTool | None:
    version = row.current_version
    implementation = _implementation_of(tool, row)
    if version is None or implementation is None:
        return None
    return CallableTool(
        tool=tool,
        tool_pk=row.pk,
        version_pk=version.pk,
        version_number=version.number,
        fingerprint=version.fingerprint,
        implementation_pk=implementation.pk,
        implementation_digest=implementation.digest,
        enabled=row.enabled,
        categories=frozenset(category.name for category in row.categories.all()),
        drifted=version.fingerprint != tool.fingerprint or implementation.digest != tool.digest,
    )


def _implementation_of(tool: LoadedTool, row: Tool) -> Implementation | None:
    """Return the row of the loaded code, or else of the code that serves the tool elsewhere."""
    rows = list(row.implementations.all())
    own = [each for each in rows if each.reference == tool.reference]
    return next(iter(own or [each for each in rows if each.enabled] or rows), None)
