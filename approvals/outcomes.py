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
from catalog.results import format_error_response
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
        response=json.dumps(_error_response(request.call, refusal.message), ensure_ascii=False),
        message=refusal.message,
        error_kind=refusal.error_kind,
        finished_at=now,
    )
    if moved:
        told = {"approval": request.public_id, "effect": "fail", "message": refusal.message}
        record("call.refused", call=request.call, by=refusal.by, **told)


def _error_response(call: Call, message: str) -> dict[str, object]:
    """Return the standard response; the parameters of a query stand inside the arguments."""
    query_type, parameters = None, call.arguments_json
    if call.query_type:
        query_type, parameters = call.query_type, parameters.get("parameters", {})
    return format_error_response(query_type, parameters, message, tool_name=call.tool_name)
