"""Conditions of grants as a viewer may see them."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.models import User

from approvals.models import Grant
from approvals.requests.privacy import hidden_from
from catalog.calls.privacy import PrivateCallParts, can_see_private, mask


def conditions_for(viewer: User, grants: Iterable[Grant]) -> Mapping[int, list[dict[str, Any]]]:
    """Return the conditions of each grant by primary key, masking call arguments that the viewer may not see."""
    rows = {grant.pk: (grant.created_from, list(grant.conditions)) for grant in grants}
    hidden = dict(hidden_from(viewer, [source for source, _ in rows.values() if source is not None]))
    free = None if can_see_private(viewer) else PrivateCallParts(everything=True)

    def masked(row: dict[str, Any], private_parts: PrivateCallParts | None) -> dict[str, Any]:
        if private_parts is None or "value" not in row:
            return row
        is_private = private_parts.everything or row["path"].partition(".")[0] in private_parts.names
        return row | {"value": mask(row["value"])} if is_private else row

    return {
        pk: [masked(row, hidden.get(source.call_id) if source is not None else free) for row in of]
        for pk, (source, of) in rows.items()
    }
