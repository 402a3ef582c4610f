"""Callers of the MCP server: a bearer token and its owner, verified for each request and again during long ones."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.db import close_old_connections

from catalog.access.roles import NotAllowed, user_for_token
from catalog.access.tokens import authenticate_token
from catalog.inventory import snapshot
from catalog.models import ApiToken
from catalog.rest.authentication import check_scope
from plans.store.requesters import Requester

SCOPE = "calls:create"
SCOPE_KEY = "toolgate.caller"
"""The key of an ASGI scope under which the caller of its request stands."""
CHECK_SECONDS = 3.0
"""Seconds after which a long request verifies its token again."""

ResultT = TypeVar("ResultT")


class TokenEnded(Exception):
    """The token was revoked, has expired, or its owner was deactivated while a request lasted."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The token of a request, its owner, and the name by which the client introduces itself."""

    token: ApiToken
    user: User
    user_agent: str = ""

    @property
    def may_call(self) -> bool:
        """True if the token's scopes and its owner's role allow calls."""
        try:
            check_scope(SCOPE, self.user, self.token)
        except NotAllowed:
            return False
        return True

    def requester(self, session: str = "") -> Requester:
        """Return the caller as the requester of calls in a named session."""
        return Requester(self.user, self.token, via="mcp", session=session)


def verify(text: str, user_agent: str) -> Caller | None:
    """Return the caller with this bearer token; None for a token that is unknown, expired or revoked.

    Reads the catalog again if it is outdated, so that the event loop finds it in memory.
    """
    token = authenticate_token(text)
    if token is None:
        return None
    snapshot.callable_tools()
    return Caller(token, user_for_token(token), user_agent)


def verify_again(caller: Caller) -> Caller:
    """Return the caller as the database has it now. Raises TokenEnded."""
    token = ApiToken.objects.select_related("user").filter(pk=caller.token.pk).first()
    if token is None or not token.is_live or not token.user.is_active:
        raise TokenEnded
    return Caller(token, user_for_token(token), caller.user_agent)


_threads = ThreadPoolExecutor(settings.MCP_THREADS, thread_name_prefix="toolgate-mcp")


async def in_thread(function: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Run a function that uses the database in one of the MCP server's threads."""
    loop = asyncio.get_running_loop()
    here = copy_context()  # the ids by which log lines and plans are found
    return await loop.run_in_executor(_threads, here.run, _with_connection, partial(function, *arguments))


def _with_connection(function: Callable[[], ResultT]) -> ResultT:
    """Run a function on a connection that works, and give it back."""
    close_old_connections()
    try:
        return function()
    finally:
        close_old_connections()
