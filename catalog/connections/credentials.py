"""Texts of OAuth's credentials: random, with prefixes by which secret scanners and `/mcp` recognise them."""

import hashlib
import secrets

from oauthlib.common import Request

ACCESS_PREFIX, REFRESH_PREFIX = "tga_", "tgr_"
RANDOM_BYTES = 32


def new_access_token(request: Request, **kwargs: object) -> str:
    return ACCESS_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def new_refresh_token(request: Request, **kwargs: object) -> str:
    return REFRESH_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def new_client_secret() -> str:
    return secrets.token_urlsafe(RANDOM_BYTES)


def checksum_of(text: str) -> str:
    """Return the SHA-256 of a credential; it is random, so that a slow hash would add nothing."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
