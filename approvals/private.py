"""What of a request its readers must not see: private arguments, and the preview and the reason that may repeat them.

Reviewers and administrators judge what they see, so they see it all; so do those who asked, or answer for another.
Lists name of a request what its page does.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from approvals.models import ApprovalRequest, Grant
from catalog.access.roles import agent_token_of
from catalog.calls.privacy import Hidden, asked_for, mask, private_in, sees_private

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def hidden_from(viewer: "User", requests: Iterable[ApprovalRequest]) -> Mapping[int, Hidden]:
    """Return what the viewer must not see of these requests, by their calls' keys."""
    if sees_private(viewer):
        return {}
    calls = [request.call for request in requests if not _is_own(viewer, request)]
    return private_in(calls) if calls else {}


def _is_own(viewer: "User", request: ApprovalRequest) -> bool:
    in_set = agent_token_of(viewer) is None and viewer.pk in {each.user_id for each in request.call.requesters.all()}
    return in_set or asked_for(viewer, request.call) or _may_answer(viewer, request)


def _may_answer(viewer: "User", request: ApprovalRequest) -> bool:
    """Say whether the viewer was asked to answer it in someone's place."""
    return agent_token_of(viewer) is None and viewer.pk in {each.to_id for each in request.delegations.all()}


def conditions_for(viewer: "User", grants: Iterable[Grant]) -> Mapping[int, list[dict[str, Any]]]:
    """Return the rows of these grants by their keys, as the viewer may see them: they repeat a call's arguments.

    Of one that was made freely nobody can say whose data its rows hold: only who sees private data sees their values.
    """
    rows = {grant.pk: (grant.created_from, list(grant.conditions)) for grant in grants}
    hidden = dict(hidden_from(viewer, [source for source, _ in rows.values() if source is not None]))
    free = None if sees_private(viewer) else Hidden(everything=True)

    def shown(source: ApprovalRequest | None, of: list[dict[str, Any]]) -> list[dict[str, Any]]:
        mask_of = hidden.get(source.call_id) if source is not None else free
        return [_mask_row(row, mask_of) for row in of] if mask_of is not None else of

    return {pk: shown(source, of) for pk, (source, of) in rows.items()}


def _mask_row(row: dict[str, Any], hidden: Hidden) -> dict[str, Any]:
    is_private = hidden.everything or row["path"].partition(".")[0] in hidden.names
    return row | {"value": mask(row["value"])} if is_private and "value" in row else row


def mask_preview(preview: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a preview that says no more than its kind."""
    if preview is None:
        return None
    return {name: value if name == "kind" else mask(value) for name, value in preview.items()}
