"""What of a request its readers must not see: private arguments, and the preview and the reason that may repeat them.

Reviewers and administrators judge what they see, so they see it all; so do those who asked, or answer for another.
Lists name of a request what its page does.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from approvals.models import ApprovalRequest
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


def mask_preview(preview: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a preview that says no more than its kind."""
    if preview is None:
        return None
    return {name: value if name == "kind" else mask(value) for name, value in preview.items()}
