"""Scopes that clients may ask for, and those that they are offered."""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import User
from oauth2_provider.scopes import BaseScopes

from catalog.access.tokens import SCOPES, SCOPES_DENIED_TO_AGENTS, may_hold_scope

OFFERED_SCOPES = ("tools:read", "calls:create")
"""The scopes in the metadata. Many clients ask for every scope listed there, so that it lists the least."""
AGENT_SCOPES = tuple(scope for scope in SCOPES if scope not in SCOPES_DENIED_TO_AGENTS)


def held_scopes(user: User, scopes: Iterable[str]) -> list[str]:
    """Return those of the scopes that the user's roles allow at present."""
    return [scope for scope in dict.fromkeys(scopes) if scope in AGENT_SCOPES and may_hold_scope(user, scope)]


class ConnectionScopes(BaseScopes):
    """The scopes of agents' tokens, for the OAuth library."""

    def get_all_scopes(self) -> dict[str, str]:
        return dict(zip(AGENT_SCOPES, AGENT_SCOPES, strict=True))

    def get_available_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        return list(AGENT_SCOPES)

    def get_default_scopes(self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any) -> list[str]:
        return list(OFFERED_SCOPES)
