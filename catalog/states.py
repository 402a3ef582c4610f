"""States of a call and the moves between them.

Statuses are written only by `catalog.core.transactions` and `plans.store.statements`.

created ──► running ──► completed | failed | cancelled | outcome_unknown
   │           │ ▲                                          │
   │           │ │                                          └──► completed | failed   (settled by a person)
   │           ▼ │
   ├──► held ──► ready ──► failed | cancelled    (running ──► ready: calls that may run again; held ──► completed:
   └──► failed | cancelled                        a person answered instead; ready ──► held: the grant that let
                                                  the call start has ended before the call ran)
"""

from django.db import models


class CallStatus(models.TextChoices):
    CREATED = "created"
    HELD = "held"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    OUTCOME_UNKNOWN = "outcome_unknown"


MOVES: dict[str, frozenset[str]] = {
    CallStatus.CREATED: frozenset({CallStatus.HELD, CallStatus.RUNNING, CallStatus.FAILED, CallStatus.CANCELLED}),
    CallStatus.HELD: frozenset({CallStatus.READY, CallStatus.FAILED, CallStatus.CANCELLED, CallStatus.COMPLETED}),
    CallStatus.READY: frozenset({CallStatus.RUNNING, CallStatus.HELD, CallStatus.FAILED, CallStatus.CANCELLED}),
    CallStatus.RUNNING: frozenset(
        {
            CallStatus.COMPLETED,
            CallStatus.FAILED,
            CallStatus.OUTCOME_UNKNOWN,
            CallStatus.READY,
            CallStatus.CANCELLED,
        }
    ),
    CallStatus.OUTCOME_UNKNOWN: frozenset({CallStatus.COMPLETED, CallStatus.FAILED}),
    CallStatus.COMPLETED: frozenset(),
    CallStatus.FAILED: frozenset(),
    CallStatus.CANCELLED: frozenset(),
}
TERMINAL = frozenset(status for status, targets in MOVES.items() if not targets)

# Status in the API: three internal states are "running", two wait for a person.
PUBLIC_STATUS: dict[str, str] = {
    CallStatus.CREATED: "running",
    CallStatus.READY: "running",
    CallStatus.RUNNING: "running",
    CallStatus.HELD: "waiting",
    CallStatus.OUTCOME_UNKNOWN: "waiting",
    CallStatus.COMPLETED: "completed",
    CallStatus.FAILED: "failed",
    CallStatus.CANCELLED: "cancelled",
}
WAITING_FOR: dict[str, str] = {CallStatus.HELD: "approval", CallStatus.OUTCOME_UNKNOWN: "outcome"}
