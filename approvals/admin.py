"""Django admin: read-only lists of accounts, groups, requests, reviews and the audit log."""

from typing import Any

import django.contrib.auth.admin  # noqa: F401 (registers its models, which are unregistered below)
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest

from approvals.models import ApprovalRequest, AuditEntry, Review
from catalog.access.roles import ADMINISTRATOR, has_role


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # generic for the type checker only
    """Read-only admin for administrators; all changes go through the services."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_role(request.user, ADMINISTRATOR)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return has_role(request.user, ADMINISTRATOR)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


admin.site.unregister([User, Group])


@admin.register(User)
class PeopleAdmin(ReadOnlyAdmin):
    """Accounts; read-only, because their changes go through `catalog.access.people`."""

    list_display = ("username", "first_name", "last_name", "email", "is_active", "is_superuser", "last_login")
    list_filter = ("is_active", "is_superuser", "groups")
    search_fields = ("username", "first_name", "last_name", "email")
    ordering = ("username",)
    exclude = ("password",)


@admin.register(Group)
class GroupAdmin(ReadOnlyAdmin):
    """Groups; read-only, because renaming or deleting one would change its members' rights."""

    fields = ("name",)
    search_fields = ("name",)
    ordering = ("name",)


@admin.register(ApprovalRequest)
class ApprovalRequestAdmin(ReadOnlyAdmin):
    list_display = (
        "public_id",
        "status",
        "tool_version",
        "plan_ref",
        "opened_at",
        "expires_at",
        "decided_at",
    )
    list_filter = ("status",)
    list_select_related = ("tool_version__tool",)
    search_fields = ("public_id", "plan_ref", "call__public_id")
    ordering = ("-id",)


@admin.register(Review)
class ReviewAdmin(ReadOnlyAdmin):
    list_display = ("request", "person", "verdict", "channel", "at", "undone_at")
    list_filter = ("verdict", "channel")
    list_select_related = ("request", "person")
    ordering = ("-id",)


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("seq", "at", "actor_name", "action", "object_ref", "tool_name", "plan_ref")
    list_filter = ("action",)
    search_fields = ("object_ref", "actor_name", "plan_ref")
