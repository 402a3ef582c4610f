"""Sources of these tests: an upstream MCP server over stdio and over HTTP, and a document that needs no network."""

import json
from typing import Any

import pytest

from catalog.inventory.sources import create_source, sync_source
from catalog.sources import mcp_client
from tests.upstreams import Offer, WebUpstream

SHOP: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://shop.example"}],
    "paths": {
        "/orders": {
            "get": {"operationId": "list_orders", "responses": {"200": {"description": "OK"}}},
            "delete": {"operationId": "drop_orders", "responses": {"200": {"description": "OK"}}},
        }
    },
}
VALUES: dict[str, Any] = {
    "name": "shop",
    "kind": "openapi",
    "document": json.dumps(SHOP),
    "headers": {"Authorization": "Bearer s3cret"},
}


@pytest.fixture
def offer(tmp_path):
    """Return an upstream with one safe and one dangerous tool."""
    return Offer(tmp_path / "offered.json")


@pytest.fixture
def source(transactional_db, admin, offer):
    """Return a source with the upstream's tools, imported."""
    made = create_source(
        {"name": "wiki", "kind": "mcp", "command": offer.command, "trusted": True}, by=admin, any_command=True
    )
    sync_source(made)
    yield made
    mcp_client.run_on_loop(mcp_client.close_connection(made.pk), 10)


@pytest.fixture
def web_source(transactional_db, admin, offer, settings):
    """Return a source whose upstream is an HTTP server, and that server."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    upstream = WebUpstream(offer)
    made = create_source({"name": "wiki", "kind": "mcp", "url": upstream.url, "trusted": True}, by=admin)
    sync_source(made)
    yield made, upstream
    mcp_client.close_connections()
    upstream.stop()
