"""A served Toolgate and a token, for clients that ask it."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User

from catalog.access.tokens import create_token
from catalog.models import ApiToken
from config.serving.handler import ThreadedHandler
from plans.client_setup.tokens import SCOPES
from plans.live.long_polling import WaitForCall
from plans.live.waits import until_decided, until_settled
from tests.plans.mcp.conftest import serving_mcp


@pytest.fixture
def pages_and_rest() -> WaitForCall:
    """The application behind everything but `/mcp`."""
    return WaitForCall(ThreadedHandler(), until_settled, until_decided)


@pytest.fixture
def url(executor: object, pages_and_rest: WaitForCall) -> Iterator[str]:
    """The address of a server with pages, REST and MCP."""
    with serving_mcp(others=pages_and_rest) as mcp:
        yield mcp.removesuffix("/mcp")


@pytest.fixture
def token(ada: User) -> tuple[ApiToken, str]:
    return create_token(user=ada, kind="agent", scopes=SCOPES)
