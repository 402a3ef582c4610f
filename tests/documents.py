"""Small OpenAPI documents for tests."""

import json

SHOP = json.dumps(
    {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": "https://shop.invalid"}],
        "paths": {"/orders/": {"get": {"operationId": "list_orders", "responses": {"200": {"description": "OK"}}}}},
    }
)
"""An OpenAPI document: its source is synchronised without a network."""
