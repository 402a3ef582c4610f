"""An answer as it is given, and everything that can be wrong with it before anything is locked or stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from approvals.models import ApprovalRequest
from approvals.requests.lifecycle import check_text
from approvals.states import FAIL, REJECTION_EFFECTS, Verdict
from catalog.calls import vault
from catalog.core.canonical_json import size_of
from catalog.definitions.levels import Reversibility
from catalog.errors import ParameterError, field_error, nested_errors
from catalog.schemas import Problem, compile_schema, plain_json, refuse
from catalog.secrets.placeholders import scrub_words, shown_text

MAX_RESPONSE = 256 * 1024
"""Bytes of an answer given in the tool's place: as many as its arguments may have."""


class Unset(Enum):
    """Tells a response that was not given from one that is null."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Decision:
    """One person's answer: the verdict, the digest they saw, and where they gave it.

    `hunks` are the parts of a change they accept, from 0; none of them is a rejection, None is all. `arguments` are
    what an approval lets the call run with instead; `response` is the answer given in the tool's place; `effect` says
    what a rejection does to the plan: fail the step, skip it, or cancel the plan.
    """

    verdict: Verdict
    seen_digest: str
    comment: str = ""
    channel: Literal["rest", "page"] = "rest"
    hunks: tuple[int, ...] | None = None
    arguments: Mapping[str, Any] | None = None
    response: Any = UNSET
    effect: str = FAIL


def whole(decision: Decision) -> Decision:
    """Return the decision as it is meant: one that accepts no hunk is a rejection.

    Raises ParameterError for parts that do not go with the verdict.
    """
    _check_parts(decision)
    check_text(decision.comment)
    decision = replace(decision, comment=scrub_words(decision.comment))
    if decision.hunks is None or decision.hunks:
        return decision
    return replace(decision, verdict=Verdict.REJECT, hunks=None)


def _check_parts(decision: Decision) -> None:
    """Refuse what belongs to another verdict, rather than leave it out unseen."""
    verdict = decision.verdict
    if decision.hunks is not None and verdict != Verdict.APPROVE:
        raise field_error(
            "hunks", "invalid", "Hunks are for approving; a rejection is of the whole change. Leave them out."
        )
    if decision.arguments is not None and (verdict != Verdict.APPROVE or decision.hunks is not None):
        why = "Changed arguments go with the verdict approve, and not with hunks."
        raise field_error("arguments", "invalid", f"{why} Leave one of them out.")
    if decision.response is not UNSET and verdict != Verdict.RESPOND:
        raise field_error("response", "invalid", "A response goes with the verdict respond. Leave it out.")
    if decision.response is UNSET and verdict == Verdict.RESPOND:
        raise field_error("response", "required", "Give the answer that the agent gets in the tool's place.")
    if decision.effect not in REJECTION_EFFECTS:
        raise field_error("effect", "invalid_choice", f"This must be one of {', '.join(REJECTION_EFFECTS)}.")
    if decision.effect != FAIL and verdict != Verdict.REJECT:
        raise field_error("effect", "invalid", "Only a rejection says what becomes of the plan. Leave the effect out.")


def judge_comment(request: ApprovalRequest, decision: Decision) -> None:
    """Refuse a comment that cannot be kept, and a rejection or a wish for changes without one where it is needed."""
    if decision.comment.strip():
        return
    verdict = decision.verdict
    if verdict == Verdict.REQUEST_CHANGES:
        raise field_error("comment", "required", "Say what is to be changed: whoever asked has nothing else to go by.")
    if verdict == Verdict.REJECT and needs_reason(request):
        raise field_error(
            "comment", "required", "Say why you reject this: the agent and the audit log need the reason."
        )


def needs_reason(request: ApprovalRequest) -> bool:
    """Say whether a rejection needs a reason: as the rule says, else where the call cannot be undone."""
    required = request.policy_revision.reason_required
    irreversible = request.tool_version.reversibility == Reversibility.IRREVERSIBLE
    return irreversible if required is None else required


def judge_response(request: ApprovalRequest, response: Any) -> None:
    """Refuse an answer that the tool itself could not have given. Raises ParameterError under `response`."""
    try:
        value = plain_json(response)
        if size_of(value) > MAX_RESPONSE:
            refuse([Problem("", "too_large", f"A response has at most {MAX_RESPONSE:,} bytes as JSON.")])
        schema = request.tool_version.output_schema
        if schema is not None:
            refuse(compile_schema(schema).problems(value))
    except ParameterError as error:
        raise nested_errors("response", error) from None


def without_secrets(response: Any) -> str:
    """Return a response as it is stored: JSON, known shapes of secrets cut out for good; empty where there is none."""
    return "" if response is UNSET else shown_text(vault.sealed(None, response).text)
