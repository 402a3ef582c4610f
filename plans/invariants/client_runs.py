"""I22: calls that their clients run were handed out when they started, and end."""

from collections.abc import Iterator

from catalog.models import Source
from catalog.states import CallStatus
from plans.invariants.base import CheckInput, Finding, findings, invariant

STARTED = """
    SELECT c.public_id FROM catalog_source s JOIN catalog_tool t ON t.source_id = s.id
    JOIN catalog_call c ON c.tool_name = t.name LEFT JOIN catalog_clientrun r ON r.call_id = c.id
    WHERE s.kind = %s AND c.attempt > 0 AND r.allowed_at IS NULL
"""
NOT_STARTED = """
    SELECT c.public_id FROM catalog_clientrun r JOIN catalog_call c ON c.id = r.call_id
    WHERE r.allowed_at IS NOT NULL AND (c.attempt <> 1 OR c.started_at IS NULL)
"""
NOT_ENDED = """
    SELECT c.public_id FROM catalog_clientrun r JOIN catalog_call c ON c.id = r.call_id
    WHERE r.allowed_at IS NOT NULL AND r.allowed_until IS NULL AND c.status = %s
"""
NOT_ALLOWED = """
    SELECT c.public_id FROM catalog_clientrun r JOIN catalog_call c ON c.id = r.call_id
    WHERE r.reported_at IS NOT NULL AND r.allowed_at IS NULL
"""


@invariant(22, "Each call that its client ran was started when it was handed out, once, and has an end.")
def client_runs_start_and_end(check: CheckInput) -> Iterator[Finding]:
    yield from findings("It was started, but not handed out to its client.", STARTED, str(Source.Kind.CLIENT))
    yield from findings("It was handed out, but not started once.", NOT_STARTED)
    yield from findings(
        "It was handed out, and neither ends nor waits for a report.", NOT_ENDED, str(CallStatus.RUNNING)
    )
    yield from findings("It was reported, but not handed out.", NOT_ALLOWED)
