"""Sources of these tests: an upstream MCP server over stdio and over HTTP, and a document that needs no network."""

import json
from typing import Any

import pytest

from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.sources import mcp_client
from tests.upstreams import DROP, READ, Offer, WebUpstream

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


@pytest.fixture(scope="session")
def shared_offer(tmp_path_factory):
    """The tools of the upstreams of all tests; `offer` sets them back."""
    return Offer(tmp_path_factory.mktemp("upstream") / "offered.json")


@pytest.fixture(scope="session")
def shared_upstream(shared_offer):
    """An HTTP server for all tests that neither stop it nor make it fail."""
    upstream = WebUpstream(shared_offer)
    yield upstream
    upstream.stop()


@pytest.fixture
def offer(shared_offer):
    """Return an upstream with one safe and one dangerous tool."""
    shared_offer(READ, DROP)
    return shared_offer


@pytest.fixture
def source(transactional_db, admin, offer, shared_upstream, settings):
    """Return a source with the upstream's tools, imported over HTTP."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    made = create_source({"name": "wiki", "kind": "mcp", "url": shared_upstream.url, "trusted": True}, by=admin)
    sync_source(made)
    yield made
    mcp_client.close_connections()


@pytest.fixture
def program_source(transactional_db, admin, offer):
    """Return a source with the upstream's tools, imported from a program over stdio."""
    made = create_source(
        {"name": "wiki", "kind": "mcp", "command": offer.command, "trusted": True}, by=admin, any_command=True
    )
    sync_source(made)
    yield made
    mcp_client.close_connections()


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
