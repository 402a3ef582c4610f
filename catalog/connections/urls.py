"""URLs of OAuth beside the page of the consent: endpoints, whose last slash clients may leave out, and metadata."""

from django.urls import path

from catalog.connections import endpoints
from catalog.connections.addresses import MCP_PATH, RESOURCE_METADATA_PATH, SERVER_METADATA_PATH

ENDPOINTS = {"token": endpoints.token, "register": endpoints.register, "revoke": endpoints.revoke}
METADATA = {RESOURCE_METADATA_PATH: endpoints.resource_metadata, SERVER_METADATA_PATH: endpoints.server_metadata}

urlpatterns = [
    *(
        path(f"oauth/{name}{last}", view, name=f"oauth-{name}")
        for name, view in ENDPOINTS.items()
        for last in ("/", "")
    ),
    *(path(address[1:] + more, view) for address, view in METADATA.items() for more in ("", MCP_PATH)),
]
