"""What an answer does to the held call: it is released to run, or it fails with the reason its asker is told.

A call that ended in another way meanwhile, because its plan was cancelled, is left as it is.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from approvals.models import ApprovalRequest
from catalog.facts import record
from catalog.models import Call
from catalog.states import CallStatus
from catalog.transitions import try_move

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a held call will not run: a word for programs, a sentence for people and models, who said so."""

    error_kind: str
    message: str
    by: "User | None" = None


def release(request: ApprovalRequest, *, by: "User | None") -> None:
    """Let an approved call run."""
    if try_move(Call.objects.filter(pk=request.call_id), to=CallStatus.READY):
        record("call.released", call=request.call, by=by, approval=request.public_id)


def refuse(request: ApprovalRequest, refusal: Refusal, *, now: datetime) -> None:
    """Fail the held call; its step fails with the same message."""
    moved = try_move(
        Call.objects.filter(pk=request.call_id),
        to=CallStatus.FAILED,
        response=json.dumps(request.call.error_response(refusal.message), ensure_ascii=False),
        message=refusal.message,
        error_kind=refusal.error_kind,
        finished_at=now,
    )
    if moved:
        told = {"approval": request.public_id, "effect": "fail", "message": refusal.message}
        record("call.refused", call=request.call, by=refusal.by, **told)
