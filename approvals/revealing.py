"""Revealing: one secret of a call at a time, to whoever may decide its request, or administers; the audit log says who.

Who asked is not among them: they gave the value, and an agent's token could otherwise read what a person entrusted to
a plan. A secret can be seen as long as it is kept: until its call has ended.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import transaction

from approvals.models import ApprovalRequest
from approvals.policies.eligibility import may_decide
from approvals.selectors import current_round
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role
from catalog.calls import vault
from catalog.calls.privacy import value_at
from catalog.core.transactions import retried
from catalog.errors import Conflict, ParameterError
from catalog.secrets.placeholders import placeholders
from catalog.signals import announce, record

if TYPE_CHECKING:
    from django.contrib.auth.models import User

GONE = "The secrets of this call are not kept any more: they were deleted when it ended."


@dataclass(frozen=True, slots=True)
class SecretField:
    """One place of the arguments where a secret is; `text` once it is revealed."""

    number: int
    path: str
    text: str | None = None


def secret_fields(arguments: Any) -> list[SecretField]:
    """Return where secrets stood in arguments as they are shown, each place once; in keys, which have none, unsaid."""
    return [SecretField(number, path) for number, path in enumerate(dict(placeholders(arguments, keys=False)))]


def may_reveal(request: ApprovalRequest, user: "User") -> bool:
    """Say whether the user may see the secrets of a request: who may decide it, and administrators."""
    if agent_token_of(user) is not None:
        return False
    return has_role(user, ADMINISTRATOR) or may_decide(request, user) is None


@retried
def reveal(request: ApprovalRequest, path: str, *, by: "User") -> Any:
    """Return one secret by its dotted path in the arguments, and keep in the audit log who saw it, never what it is.

    Raises NotAllowed, ParameterError for a path where no secret is, and Conflict when it is not kept any more.
    """
    if not may_reveal(request, by):
        raise NotAllowed("Only who may decide this request, and administrators, see its secrets.")
    round_ = current_round(request)
    known = [field.path for field in secret_fields(round_.arguments_json)]
    if path not in known:
        raise _no_secret(known)
    opened = vault.opened(round_.arguments, request.call.plan_ref)
    value = value_at(opened, path)
    if next(placeholders(value), None) is not None:
        raise Conflict(GONE)
    with transaction.atomic():
        announce(request.call)
        record("call.revealed", call=request.call, by=by, approval=request.public_id, path=path)
    return value


def reveal_field(request: ApprovalRequest, path: str, *, by: "User") -> SecretField:
    """Reveal one secret for a page; raise what `reveal` raises."""
    value = reveal(request, path, by=by)
    fields = secret_fields(current_round(request).arguments_json)
    number = next(field.number for field in fields if field.path == path)
    return SecretField(number, path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _no_secret(known: list[str]) -> ParameterError:
    where = f"The secrets are at {', '.join(known[:20])}." if known else "Nothing of this call is secret."
    error = {"path": "path", "code": "not_a_secret", "message": f"There is no secret at this path. {where}"}
    return ParameterError(error["message"], {"field": "path", "errors": [error]})
