"""What a request may do: a person acts by role; a token needs the scope and its owner's role."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from catalog.access.roles import ADMINISTRATOR, OPERATOR, ROLES, NotAllowed, has_role
from catalog.models import ApiToken

# Reading plans and approvals needs no role: without one, selectors show a person's own things only.
# Deciding needs what the policy of each request asks for, which the service knows.
ROLES_FOR: Mapping[str, tuple[str, ...]] = {
    "tools:read": ROLES,
    "calls:create": (OPERATOR, ADMINISTRATOR),
    "plans:read": (),
    "plans:write": (OPERATOR, ADMINISTRATOR),
    "approvals:read": (),
    "approvals:decide": (),
    "catalog:write": (ADMINISTRATOR,),
    "policies:write": (ADMINISTRATOR,),
    "audit:read": (ADMINISTRATOR,),
}


class HasScope(BasePermission):
    """Asks for one of the scopes that the view names for the method in `required_scopes`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Say yes, or raise PermissionDenied naming the missing scope or role."""
        scopes: Sequence[str] = view.required_scopes.get(request.method, ())
        if not scopes:
            return True
        held = scopes
        if isinstance(request.auth, ApiToken):
            held = [scope for scope in scopes if scope in request.auth.scopes]
        if not held:
            raise PermissionDenied(f"This token lacks the scope {' or '.join(scopes)}.")
        if any(_has_role_for(scope, request.user) for scope in held):
            return True
        raise PermissionDenied(f"This needs the role {' or '.join(ROLES_FOR[held[0]])}.")


def check_scope(scope: str, user: User, token: ApiToken | None) -> None:
    """Raise NotAllowed unless the user, or their live token, may do what the scope is about."""
    if not user.is_active or (token is not None and not token.is_live):
        raise NotAllowed("This account or token is not valid any more.")
    if token is not None and scope not in token.scopes:
        raise NotAllowed(f"This token lacks the scope {scope}.")
    if not _has_role_for(scope, user):
        raise NotAllowed(f"This needs the role {' or '.join(ROLES_FOR[scope])}.")


def _has_role_for(scope: str, user: User | AnonymousUser) -> bool:
    roles = ROLES_FOR[scope]
    return not roles or has_role(user, *roles)
