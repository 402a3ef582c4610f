"""Authentication by bearer token or session, and permissions by scope and role. With a token, cookies are ignored."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import AnonymousUser, User
from drf_spectacular.authentication import SessionScheme
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from catalog.access.roles import (
    SIGNED_IN_AT_KEY,
    NotAllowed,
    has_role,
    mark_session_user,
    user_for_token,
)
from catalog.access.second_factors import FACTOR_REQUIRED, lacks_required_factor
from catalog.access.tokens import SCOPE_ROLES, authenticate_token
from catalog.models import ApiToken

if TYPE_CHECKING:
    from drf_spectacular.openapi import AutoSchema


class BearerAuthentication(BaseAuthentication):
    """Authentication by `Authorization: Bearer tg_…`; sets `request.auth` to the token."""

    def authenticate(self, request: Request) -> "tuple[User, ApiToken] | None":
        """Return the token's owner and the token; None without a bearer header. Raises AuthenticationFailed."""
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = authenticate_token(text.strip())
        if token is None:
            raise AuthenticationFailed("This token is unknown, expired or revoked. Use a new one.")
        return user_for_token(token), token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class SignedInAuthentication(SessionAuthentication):
    """Session authentication that also records on the user when they signed in."""

    def authenticate(self, request: Request) -> "tuple[User, None] | None":
        """Return the user of the session, or None. Raises PermissionDenied without CSRF token or required factor."""
        found: tuple[User, None] | None = super().authenticate(request)
        if found is not None:
            if lacks_required_factor(found[0]):
                raise PermissionDenied(FACTOR_REQUIRED)
            mark_session_user(found[0], request._request.session.get(SIGNED_IN_AT_KEY))
        return found


class SignedInScheme(SessionScheme):  # type: ignore[no-untyped-call]
    target_class = "catalog.rest.authentication.SignedInAuthentication"


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "catalog.rest.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: "AutoSchema") -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "tg_…"}


class HasScope(BasePermission):
    """Requires one of the scopes in the view's `required_scopes` for the request's method."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return True, or raise PermissionDenied naming the missing scope or role."""
        scopes: Sequence[str] = view.required_scopes.get(request.method, ())
        if not scopes:
            return True
        held = scopes
        if isinstance(request.auth, ApiToken):
            held = [scope for scope in scopes if scope in request.auth.scopes]
        if not held:
            raise PermissionDenied(f"This token lacks the scope {' or '.join(scopes)}.")
        if any(_has_scope_role(scope, request.user) for scope in held):
            return True
        raise PermissionDenied(f"This requires the role {' or '.join(SCOPE_ROLES[held[0]])}.")


def check_scope(scope: str, user: User, token: ApiToken | None) -> None:
    """Raise NotAllowed unless a live token, if any, has the scope and the user has the role that the scope requires."""
    if not user.is_active or (token is not None and not token.is_live):
        raise NotAllowed("This account or token is no longer valid.")
    if token is not None and scope not in token.scopes:
        raise NotAllowed(f"This token lacks the scope {scope}.")
    if not _has_scope_role(scope, user):
        raise NotAllowed(f"This requires the role {' or '.join(SCOPE_ROLES[scope])}.")


def _has_scope_role(scope: str, user: User | AnonymousUser) -> bool:
    roles = SCOPE_ROLES[scope]
    return not roles or has_role(user, *roles)
