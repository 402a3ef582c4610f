"""Tool sources of the demo: the sets that ship with Toolgate, and a published MCP server that converts times."""

import sys

from django.contrib.auth.models import User

from catalog.errors import ToolgateError
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source, switchable_sources, update_source
from catalog.models import Source

TIME_SERVER = {
    "name": "time",
    "kind": "mcp",
    "command": [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"],
    "trusted": True,
}


def enable_shipped_sets() -> None:
    """Enable the sets of tools that ship with Toolgate, except those that a person enabled or disabled."""
    administrator = User.objects.get(username="admin")
    for source in switchable_sources().filter(kind=Source.Kind.PYTHON, enabled=False, switched_at=None):
        update_source(source, {"enabled": True}, by=administrator)


def make_sources() -> str:
    """Add the MCP server unless it exists, and import its tools; return the error message if that failed."""
    source = Source.objects.filter(name=TIME_SERVER["name"]).first()
    try:
        if source is None:
            administrator = User.objects.get(username="admin")
            source = create_source(TIME_SERVER, by=administrator, any_command=True)
        if source.enabled and source.is_imported:
            sync_source(source)
    except ToolgateError as error:
        return error.message
    return ""
