"""Authentication at `/mcp`, where static tokens and access tokens of OAuth work; one statement finds either kind."""

from catalog.access.tokens import authenticate_token, authenticate_token_where
from catalog.connections.addresses import offers_oauth
from catalog.connections.credentials import ACCESS_PREFIX, checksum_of
from catalog.core import clock
from catalog.core.database import bind_datetime
from catalog.models import ApiToken

TOKEN_HAS_ACCESS = (
    "token.id = (SELECT access.api_token_id FROM connections_accesstoken AS access "  # noqa: S105 - a condition in SQL
    "WHERE access.token_checksum = %s AND access.expires > %s)"
)


def authenticate_at_mcp(text: str) -> ApiToken | None:
    """Return the token with this text, as `authenticate_token` does, or the token of the connection with this access
    token. REST and sockets do not look for access tokens: those are issued for `/mcp` alone.
    """
    if not is_access_token(text):
        return authenticate_token(text)
    if not offers_oauth():
        return None
    return authenticate_token_where(TOKEN_HAS_ACCESS, [checksum_of(text), bind_datetime(clock.now())])


def is_access_token(text: str) -> bool:
    return text.startswith(ACCESS_PREFIX)
