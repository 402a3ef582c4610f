"""Private data and secrets of requests: what is hidden from a viewer, and revealing one secret at a time.

Private arguments, and the preview and reason that may repeat them, are hidden from viewers who are neither reviewers,
administrators, requesters nor delegates. A secret is revealed to users who may decide the request and to
administrators, not to its requesters; this is audited, and possible only until the call has ended.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import ApprovalRequest
from approvals.policies.eligibility import may_decide
from approvals.requests.queries import current_round
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role
from catalog.calls import vault
from catalog.calls.privacy import PrivateCallParts, can_see_private, is_own_call, mask, private_parts_of, value_at
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, field_error
from catalog.secrets.placeholders import find_placeholders
from catalog.signals import announce_call_change, record_fact

SECRETS_DELETED = "The secrets of this call were deleted when it ended."


@dataclass(frozen=True, slots=True)
class SecretField:
    """Position of a secret in the arguments; `number` is unique in its request, `text` set once it is revealed."""

    number: int
    path: str
    text: str | None = None


def secret_fields(arguments: Any) -> list[SecretField]:
    """Return the positions of secrets in displayed arguments. Secrets in keys are left out, since they have no path."""
    paths = dict(find_placeholders(arguments, keys=False))
    numbers = {path: number for number, path in enumerate(sorted(paths))}
    return [SecretField(numbers[path], path) for path in paths]


def may_reveal(request: ApprovalRequest, user: User) -> bool:
    """Return True if the user may see the request's secrets: administrators, and users who may decide the request."""
    if agent_token_of(user) is not None:
        return False
    return has_role(user, ADMINISTRATOR) or may_decide(request, user) is None


@retry_on_deadlock
def reveal_secret(request: ApprovalRequest, path: str, *, by: User) -> Any:
    """Return the secret at a dotted path of the arguments; the audit log records the viewer and path, not the value.

    Raises NotAllowed, ParameterError for a path without a secret, and Conflict if the secret was deleted.
    """
    if not may_reveal(request, by):
        raise NotAllowed("Only administrators and users who may decide this request may see its secrets.")
    round_ = current_round(request)
    known = [field.path for field in secret_fields(round_.arguments_json)]
    if path not in known:
        where = f"The secrets are at {', '.join(known[:20])}." if known else "This call has no secrets."
        raise field_error("path", "not_a_secret", f"There is no secret at this path. {where}")
    opened = vault.load_available(round_.arguments, request.call.plan_ref)
    value = value_at(opened, path)
    if next(find_placeholders(value), None) is not None:
        raise Conflict(SECRETS_DELETED)
    with transaction.atomic():
        announce_call_change(request.call)
        record_fact("call.revealed", call=request.call, by=by, approval=request.public_id, path=path)
    return value


def reveal_field(request: ApprovalRequest, path: str, *, by: User) -> SecretField:
    """Reveal one secret for a page. Raises the same exceptions as `reveal_secret`."""
    value = reveal_secret(request, path, by=by)
    fields = secret_fields(current_round(request).arguments_json)
    number = next(field.number for field in fields if field.path == path)
    return SecretField(number, path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def hidden_from(viewer: User, requests: Iterable[ApprovalRequest]) -> Mapping[int, PrivateCallParts]:
    """Return the parts of these requests that are hidden from the viewer, by the keys of their calls."""
    if can_see_private(viewer):
        return {}
    person = viewer.pk if agent_token_of(viewer) is None else None
    calls = [
        request.call
        for request in requests
        if not is_own_call(viewer, request.call)
        and (
            person is None
            or (
                not any(person == each.user_id for each in request.call.requesters.all())
                and not any(person == each.to_id for each in request.delegations.all())
            )
        )
    ]
    return private_parts_of(calls) if calls else {}


def mask_preview(preview: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a preview with everything but its kind masked."""
    if preview is None:
        return None
    return {name: value if name == "kind" else mask(value) for name, value in preview.items()}
