"""What happened to one request, oldest first: asked, edited, answered, undone, said; and how far its stages are filled.

Comments and reasons are passed on whole; the templates escape them, and say which an agent wrote.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from approvals.models import ApprovalRequest, Review
from approvals.policies.eligibility import is_requester, missing
from approvals.policies.rulebook import rule_for
from approvals.policy_language.stages import Stage
from approvals.states import RequestStatus, Verdict
from catalog.access.roles import name_of

DID = {
    Verdict.APPROVE: ("approved", "check", "ok"),
    Verdict.REJECT: ("rejected", "x", "danger"),
    Verdict.RESPOND: ("answered in the place of the tool", "human", "ok"),
    Verdict.REQUEST_CHANGES: ("asked for changes", "retry", "warn"),
}
ENDS = {
    RequestStatus.EXPIRED: "It expired: nobody answered in time.",
    RequestStatus.WITHDRAWN: "It was withdrawn.",
    RequestStatus.REVOKED: "The approval was revoked before it ran.",
    RequestStatus.INVALIDATED: "It is no longer valid: what was asked for had changed.",
    RequestStatus.SUPERSEDED: "A newer request took its place.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One line: when, who did what, and their words. `counts` says that a vote stands in the round judged now."""

    at: datetime
    who: str = ""
    did: str
    icon: str = "clock"
    hue: str = ""
    said: str = ""
    note: str = ""
    is_agent: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True)
class StageShown:
    """One stage of the rule: how many of which group, and how many of them have agreed."""

    stage: Stage
    given: int

    @property
    def is_filled(self) -> bool:
        """Whether nobody of it is missing."""
        return self.given >= self.stage.count


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the people who must agree have agreed."""

    stages: list[StageShown]
    agreed: list[str]
    lacking: list[Stage]

    @property
    def needed(self) -> int:
        """How many people must agree."""
        return sum(each.stage.count for each in self.stages)

    @property
    def given(self) -> int:
        """How many have agreed."""
        return sum(each.given for each in self.stages)


def standing_of(request: ApprovalRequest) -> Standing:
    """Return how far a request, loaded whole, has come."""
    lacking = missing(request)
    left = {stage.group: stage.count for stage in lacking}
    shown = [StageShown(each, each.count - left.get(each.group, 0)) for each in rule_for(request).stages]
    return Standing(shown, [name_of(each.person) for each in _counting(request)], lacking)


def _counting(request: ApprovalRequest) -> list[Review]:
    number = request.round_number
    return [
        each
        for each in request.reviews.all()
        if each.verdict == Verdict.APPROVE and each.undone_at is None and each.round.number == number
    ]


def timeline_of(request: ApprovalRequest) -> list[Moment]:
    """Return what happened to a request, loaded whole, oldest first; no query more."""
    return sorted(_moments(request), key=lambda moment: moment.at)


def _moments(request: ApprovalRequest) -> Iterator[Moment]:
    asked_by = request.call.token.name if request.call.token else ""
    by = asked_by or (name_of(request.call.requested_by) if request.call.requested_by else "Somebody")
    yield Moment(
        at=request.opened_at, who=by, did="asked", icon="bot" if asked_by else "human", is_agent=bool(asked_by)
    )
    for each in sorted(request.rounds.all(), key=lambda round_: round_.number):
        if each.number > 1:
            who = name_of(each.editor) if each.editor else ""
            did = "changed what is asked" if who else "What was asked before stands again"
            yield Moment(at=each.created_at, who=who, did=did, icon="edit", note="Earlier answers count no more.")
    for review in request.reviews.all():
        yield from _of_review(request, review)
    for said in request.comments.all():
        yield Moment(
            at=said.at,
            who=name_of(said.person),
            did="wrote, through an agent" if said.is_agent else "wrote",
            icon="bot" if said.is_agent else "human",
            said=said.text,
            is_agent=said.is_agent,
        )
    for handed in request.delegations.all():
        did = f"asked {name_of(handed.to)} to answer in their place"
        yield Moment(at=handed.at, who=name_of(handed.by), did=did, icon="human")
    if request.escalated_at:
        did = f"Nobody had answered, so {request.escalated_to or 'others'} may answer too"
        yield Moment(at=request.escalated_at, did=did, icon="expired", hue="warn")
    if request.status in ENDS:
        ended = request.call.finished_at or request.decided_at or request.expires_at
        yield Moment(at=ended, did=ENDS[RequestStatus(request.status)], icon="expired")


def _of_review(request: ApprovalRequest, review: Review) -> Iterator[Moment]:
    did, icon, hue = DID.get(Verdict(review.verdict), ("answered", "clock", ""))
    notes = []
    if review.on_behalf_of:
        notes.append(f"In the place of {name_of(review.on_behalf_of)}.")
    if is_requester(request, review.person):
        notes.append("Their own request: the policy allows that.")
    if review.round.number != request.round_number:
        notes.append("For an earlier version; it counts no more.")
    if review.verdict == Verdict.REJECT and review.effect != "fail":
        notes.append(
            {"skip": "The step is skipped.", "cancel_plan": "The rest of the plan is refused too."}[review.effect]
        )
    counts = review.undone_at is None and review.round.number == request.round_number
    yield Moment(
        at=review.at,
        who=name_of(review.person),
        did=did,
        icon=icon,
        hue=hue if counts else "",
        said=review.comment,
        note=" ".join(notes),
        counts=counts,
    )
    if review.undone_at:
        yield Moment(at=review.undone_at, who=name_of(review.person), did="took that back", icon="undo")
