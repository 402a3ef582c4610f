"""Sessions of coding agents: whether the client asks before it runs its own tools, and since when."""

from dataclasses import dataclass
from datetime import datetime

from plans.sessions.lists import SessionKey
from plans.store.requesters import Requester


@dataclass(frozen=True, slots=True)
class Armed:
    """The client asks first: since when, when this was last checked through the real client, and how it asks."""

    client: str
    since: datetime
    checked_at: datetime | None
    how: str


@dataclass(frozen=True, slots=True)
class NotArmed:
    """The client of a coding agent's session does not ask first, as far as can be known; `why` is for people."""

    client: str
    why: str


def note_hook_traffic(client: str, session: str, *, by: Requester, how: str) -> None:
    """Record that a client has asked in this session; `how` is hook, permission_prompt or permissions."""


def note_check(client: str, session: str, *, by: Requester) -> None:
    """Record that a canary sent through the real client was held, refused and reported."""


def armed_state(key: SessionKey) -> Armed | NotArmed | None:
    """Return whether a session's client is armed; None for a session without a coding agent."""
    return None
