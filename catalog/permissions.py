"""What a request may do: a person acts by role; a token needs the scope and its owner's role."""

from collections.abc import Mapping
from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from catalog.access import ADMINISTRATOR, OPERATOR, REVIEWER, ROLES, has_role
from catalog.models import ApiToken

# Reading plans and approvals needs no role: without one, selectors show a person's own things only.
ROLES_FOR: Mapping[str, tuple[str, ...]] = {
    "tools:read": ROLES,
    "calls:create": (OPERATOR, ADMINISTRATOR),
    "plans:read": (),
    "plans:write": (OPERATOR, ADMINISTRATOR),
    "approvals:read": (),
    "approvals:decide": (REVIEWER, ADMINISTRATOR),
    "catalog:write": (ADMINISTRATOR,),
    "policies:write": (ADMINISTRATOR,),
    "audit:read": (ADMINISTRATOR,),
}


class HasScope(BasePermission):
    """Asks for the scope that the view names for the method in `required_scopes`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Say yes, or raise PermissionDenied naming the missing scope or role."""
        scope: str | None = view.required_scopes.get(request.method)
        if scope is None:
            return True
        if isinstance(request.auth, ApiToken) and scope not in request.auth.scopes:
            raise PermissionDenied(f"This token lacks the scope {scope}.")
        roles = ROLES_FOR[scope]
        if roles and not has_role(request.user, *roles):
            raise PermissionDenied(f"This needs the role {' or '.join(roles)}.")
        return True
