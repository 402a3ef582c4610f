"""The text so far of an agent's turn, for the pages that show its plan, and for nobody else; see `plans.voices`."""

from plans.feed import feeds

MOST = 4_000
"""Characters: of a longer text the end is shown."""
BEFORE = "[… more before …]\n"


def say(plan_ref: str, step_id: int, text: str) -> None:
    """Show what the model of an agent's step has said so far; nothing once its turn is over. Never waits or raises."""
    shown = text if len(text) <= MOST else BEFORE + text[-MOST:]
    for feed in feeds():
        feed.voices.say(plan_ref, step_id, shown)
