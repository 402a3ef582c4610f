"""Django admin of the OAuth library's models: hidden, because they hold credentials and have services of their own."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest


class HiddenAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # generic for the type checker only
    """The library registers its models with classes from its settings; this one permits nothing."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
