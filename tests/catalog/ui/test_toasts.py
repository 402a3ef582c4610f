"""Messages with a button: what was switched off can be switched on again at once."""

from typing import Any

import pytest

from approvals.models import Policy
from catalog.inventory.sources import create_source
from catalog.models import Source, Tool
from catalog.ui.toasts import toast_button
from tests.documents import SHOP

pytestmark = pytest.mark.usefixtures("catalog")


def test_switching_off_offers_to_undo_it(admin, client):
    source = create_source({"name": "shop", "kind": "openapi", "document": SHOP}, by=admin)
    policy = Policy.objects.earliest("pk")
    client.force_login(admin)
    switches: list[tuple[Any, str, dict[str, str]]] = [
        (Tool.objects.get(name="write_file"), "/tools/write_file/change/", {"what": "enabled", "enabled": "no"}),
        (source, "/sources/shop/change/", {"enabled": "no"}),
        (policy, f"/policies/{policy.public_id}/act/", {"do": "off"}),
    ]
    faults = {}
    for row, path, fields in switches:
        *_, message = client.post(path, fields, follow=True).context["messages"]
        row.refresh_from_db()
        was_disabled, button = not row.enabled, toast_button(message.extra_tags)
        if button is not None:
            client.post(button.action, button.fields)
        row.refresh_from_db()
        if not (was_disabled and row.enabled):
            faults[path] = button
    assert faults == {}
    assert Source.objects.get(name="shop").enabled
