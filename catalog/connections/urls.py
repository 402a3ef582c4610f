"""URLs of OAuth beside the page of the consent: endpoints, whose last slash clients may leave out, and metadata."""

from django.urls import path, re_path

from catalog.connections import endpoints
from catalog.connections.addresses import RESOURCE_METADATA_PATH, SERVER_METADATA_PATH

urlpatterns = [
    re_path(r"^oauth/token/?$", endpoints.token, name="oauth-token"),
    re_path(r"^oauth/register/?$", endpoints.register, name="oauth-register"),
    re_path(r"^oauth/revoke/?$", endpoints.revoke, name="oauth-revoke"),
    *(
        path(address[1:] + suffix, view, name=f"{name}{suffix.replace('/', '-')}")
        for address, view, name in (
            (RESOURCE_METADATA_PATH, endpoints.resource_metadata, "oauth-resource"),
            (SERVER_METADATA_PATH, endpoints.server_metadata, "oauth-server"),
        )
        for suffix in ("", "/mcp")
    ),
]
