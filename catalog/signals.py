"""The one signal by which lower layers state what happened, inside the caller's transaction.

Receivers are connected when the apps are ready. Two must be there, or nothing starts: `approvals.audit.log` (keeps what
the audit keeps) and `plans.store.transactions` (appends the event, marks the step, wakes the executor). The others (the
vault, notices, grants, checkpoints, …) stand in the `apps.py` of their layer. A receiver that raises aborts the
transaction: no fact without its record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.core.checks import Error, register
from django.dispatch import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.auth.models import User

    from catalog.models import Call

fact = Signal()


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that happened: its kind (`noun.participle`), the call it is about, who did it, and ids to keep."""

    kind: str
    call: Call | None = None
    by: User | None = None
    data: dict[str, Any] = field(default_factory=dict)


def record_fact(kind: str, *, call: Call | None = None, by: User | None = None, **data: Any) -> None:
    """State that `kind` happened. `data` holds ids, digests and reasons, never arguments or results."""
    fact.send(sender=Fact, fact=Fact(kind, call, by, data))


def announce_call_change(call: Call) -> None:
    """Say that `call` is about to change, so that higher layers take their locks first (plan before call)."""
    record_fact("call.changing", call=call)


@register()
def check_fact_receivers(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[Error]:
    """Refuse to start when the audit log or the events would silently miss what happens."""
    names = {receiver.__module__ for receiver in fact._live_receivers(Fact)[0]}
    return [
        Error(f"{module} does not listen to catalog.signals.fact.", id="toolgate.E001")
        for module in ("approvals.audit.log", "plans.store.transactions")
        if module not in names
    ]
