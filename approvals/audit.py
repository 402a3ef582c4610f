"""The audit log."""

from typing import Any

from catalog.facts import Fact


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Keep what the audit keeps."""
