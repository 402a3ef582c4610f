"""Django application config of the connections."""

from django.apps import AppConfig


class ConnectionsConfig(AppConfig):
    name = "catalog.connections"
    label = "connections"
