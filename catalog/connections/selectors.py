"""Queries for connections: one's own, and for administrators all."""

from django.contrib.auth.models import User
from django.db.models import QuerySet

from catalog.access.roles import ADMINISTRATOR, acting_token_of, has_role
from catalog.connections.models import Connection


def connections_for(viewer: User) -> QuerySet[Connection]:
    """Return the connections that the viewer may see, with tokens and owners; none for programs."""
    connections = Connection.objects.select_related("token__user", "client").order_by("-pk")
    if acting_token_of(viewer) is not None:
        return connections.none()
    return connections if has_role(viewer, ADMINISTRATOR) else connections.filter(token__user=viewer)
