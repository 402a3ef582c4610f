"""I9: the numbers of events."""

from collections.abc import Iterator

from plans.invariants.base import Finding, World, each, invariant, rows

NUMBERED = """
    SELECT p.public_id FROM plans_plan p
    LEFT JOIN (SELECT plan_id, COUNT(*) AS found, MIN(seq) AS first, MAX(seq) AS last FROM plans_event GROUP BY plan_id)
      e ON e.plan_id = p.id
    WHERE COALESCE(e.found, 0) <> p.last_seq OR COALESCE(e.last, 0) <> p.last_seq OR COALESCE(e.first, 1) <> 1
    ORDER BY p.id
"""
NEXT_TO_EACH_OTHER = """
    SELECT p.public_id, e.seq, e.seq <> e.before + 1, e.at < e.earlier FROM (
      SELECT plan_id, seq, at, LAG(seq) OVER w AS before, LAG(at) OVER w AS earlier FROM plans_event
      WINDOW w AS (PARTITION BY plan_id ORDER BY seq)
    ) e JOIN plans_plan p ON p.id = e.plan_id
    WHERE e.before IS NOT NULL AND (e.seq <> e.before + 1 OR e.at < e.earlier)
"""


@invariant(9, "The events of each plan are numbered 1, 2, 3… without gaps, the plan knows how many, and time goes on.")
def events_are_numbered(world: World) -> Iterator[Finding]:
    """Count the events of each plan beside its counter, then look at each event and the one before it."""
    yield from each("The events are not those that the plan's counter says.", NUMBERED)
    for plan, seq, is_gap, _ in rows(NEXT_TO_EACH_OTHER):
        why = "A number is missing, or there twice." if is_gap else "An event is earlier than the one before it."
        yield Finding(f"{plan}#{seq}", why)
