"""The signal by which lower layers record facts, inside the caller's transaction. A receiver that raises aborts it."""

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
    """A recorded fact: its kind (`noun.participle`), the call that it concerns, who acted, and ids to store."""

    kind: str
    call: Call | None = None
    by: User | None = None
    data: dict[str, Any] = field(default_factory=dict)


def record_fact(kind: str, *, call: Call | None = None, by: User | None = None, **data: Any) -> None:
    """Record that `kind` happened. `data` holds ids, digests and reasons, never arguments or results."""
    fact.send(sender=Fact, fact=Fact(kind, call, by, data))


def announce_call_change(call: Call) -> None:
    """Announce that `call` is about to change, so that higher layers take their locks first (plan before call)."""
    record_fact("call.changing", call=call)


@register()
def check_fact_receivers(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[Error]:
    """Refuse to start without the receivers that write the audit log and the events."""
    names = {receiver.__module__ for receiver in fact._live_receivers(Fact)[0]}
    return [
        Error(f"{module} does not listen to catalog.signals.fact.", id="toolgate.E001")
        for module in ("approvals.audit.log", "plans.store.transactions")
        if module not in names
    ]
