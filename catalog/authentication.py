"""Who sends a request: a bearer token, or else the session. A request with a token ignores its cookies."""

from typing import TYPE_CHECKING

from drf_spectacular.authentication import SessionScheme
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from catalog.access.roles import SIGNED_IN, act_in_session, act_through
from catalog.access.tokens import authenticate
from catalog.models import ApiToken

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from drf_spectacular.openapi import AutoSchema


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer tg_…`; `request.auth` is the token."""

    def authenticate(self, request: Request) -> "tuple[User, ApiToken] | None":
        """Return the token's user and the token, None without a bearer header; raise for a dead token."""
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = authenticate(text.strip())
        if token is None:
            raise AuthenticationFailed("This token is unknown, expired or revoked; ask for a new one.")
        return act_through(token), token

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401."""
        return "Bearer"


class SignedInAuthentication(SessionAuthentication):
    """The session of a browser; the user knows how long ago it was signed in."""

    def authenticate(self, request: Request) -> "tuple[User, None] | None":
        """Return the user of the session, None without one; raise for a request of another site."""
        found: tuple[User, None] | None = super().authenticate(request)
        if found is not None:
            act_in_session(found[0], request._request.session.get(SIGNED_IN))
        return found


class SignedInScheme(SessionScheme):  # type: ignore[no-untyped-call]
    """How the OpenAPI document shows sessions."""

    target_class = "catalog.authentication.SignedInAuthentication"


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI document shows bearer tokens."""

    target_class = "catalog.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: "AutoSchema") -> dict[str, str]:
        """Return the security scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "tg_…"}
