"""What the planner reads: how to work, what the requester may call, what a plan looks like, and what was said."""

from collections.abc import Sequence

from plans.planner.asking import Said
from plans.services import Requester


def instructions_for(request: str, strategy: str, *, by: Requester) -> str:
    """Return the planner's instructions for one request: mindset, tools that may be called, format, rules."""
    raise NotImplementedError


def opening(request: str) -> Sequence[Said]:
    """Return the conversation's first message: the request, fenced."""
    raise NotImplementedError


def fenced(text: str, what: str) -> str:
    """Return text that others wrote as data in a prompt, between marks that it cannot close."""
    raise NotImplementedError
