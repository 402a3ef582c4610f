"""What happened to one request, oldest first: asked, edited, answered, undone, said; and how far its stages are filled.

Comments and reasons are passed on whole; the templates escape them, and say which an agent wrote.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from approvals.models import ApprovalRequest, Review
from approvals.policies.eligibility import approvals_of, is_requester, missing_stages
from approvals.policies.rulebook import rule_for
from approvals.policy_language.stages import Stage
from approvals.states import END_SENTENCES, ReviewVerdict
from catalog.access.roles import user_display_name

VERDICT_MARKS = {
    ReviewVerdict.APPROVE: ("check", "ok"),
    ReviewVerdict.REJECT: ("x", "danger"),
    ReviewVerdict.RESPOND: ("human", "ok"),
    ReviewVerdict.REQUEST_CHANGES: ("retry", "warn"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
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
class StageProgress:
    """One stage of the rule: how many of which group, and how many of them have agreed."""

    stage: Stage
    given: int

    @property
    def is_filled(self) -> bool:
        """Whether nobody of it is missing."""
        return self.given >= self.stage.count


@dataclass(frozen=True, slots=True)
class QuorumProgress:
    """How far the people who must agree have agreed."""

    stages: list[StageProgress]
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


def quorum_progress(request: ApprovalRequest) -> QuorumProgress:
    """Return how far a request, loaded whole, has come."""
    lacking = missing_stages(request)
    left = {stage.group: stage.count for stage in lacking}
    shown = [StageProgress(each, each.count - left.get(each.group, 0)) for each in rule_for(request).stages]
    return QuorumProgress(shown, [user_display_name(each.person) for each in approvals_of(request)], lacking)


def timeline_of(request: ApprovalRequest) -> list[TimelineEntry]:
    """Return what happened to a request, loaded whole, oldest first; no query more."""
    return sorted(_timeline_entries(request), key=lambda moment: moment.at)


def _timeline_entries(request: ApprovalRequest) -> Iterator[TimelineEntry]:
    asked_by = request.call.token.name if request.call.token else ""
    by = asked_by or (user_display_name(request.call.requested_by) if request.call.requested_by else "Somebody")
    yield TimelineEntry(
        at=request.opened_at, who=by, did="asked", icon="bot" if asked_by else "human", is_agent=bool(asked_by)
    )
    for each in sorted(request.rounds.all(), key=lambda round_: round_.number):
        if each.number > 1:
            who = user_display_name(each.editor) if each.editor else ""
            did = "changed what is asked" if who else "What was asked before stands again"
            yield TimelineEntry(
                at=each.created_at, who=who, did=did, icon="edit", note="Earlier answers count no more."
            )
    for review in request.reviews.all():
        yield from _review_entries(request, review)
    for said in request.comments.all():
        yield TimelineEntry(
            at=said.at,
            who=user_display_name(said.person),
            did="wrote, through an agent" if said.is_agent else "wrote",
            icon="bot" if said.is_agent else "human",
            said=said.text,
            is_agent=said.is_agent,
        )
    for handed in request.delegations.all():
        did = f"asked {user_display_name(handed.to)} to answer in their place"
        yield TimelineEntry(at=handed.at, who=user_display_name(handed.by), did=did, icon="human")
    if request.escalated_at:
        did = f"Nobody had answered, so {request.escalated_to or 'others'} may answer too"
        yield TimelineEntry(at=request.escalated_at, did=did, icon="expired", hue="warn")
    if request.status in END_SENTENCES:
        ended = request.call.finished_at or request.decided_at or request.expires_at
        yield TimelineEntry(at=ended, did=END_SENTENCES[request.status], icon="expired")


def _review_entries(request: ApprovalRequest, review: Review) -> Iterator[TimelineEntry]:
    verdict = ReviewVerdict(review.verdict)
    icon, hue = VERDICT_MARKS[verdict]
    notes = []
    if review.on_behalf_of:
        notes.append(f"In the place of {user_display_name(review.on_behalf_of)}.")
    if is_requester(request, review.person):
        notes.append("Their own request: the policy allows that.")
    if review.round.number != request.round_number:
        notes.append("For an earlier version; it counts no more.")
    if review.verdict == ReviewVerdict.REJECT and review.effect != "fail":
        notes.append(
            {"skip": "The step is skipped.", "cancel_plan": "The rest of the plan is refused too."}[review.effect]
        )
    yield TimelineEntry(
        at=review.at,
        who=user_display_name(review.person),
        did=verdict.label.lower(),
        icon=icon,
        hue=hue if review.counts else "",
        said=review.comment,
        note=" ".join(notes),
        counts=review.counts,
    )
    if review.undone_at:
        yield TimelineEntry(
            at=review.undone_at, who=user_display_name(review.person), did="took that back", icon="undo"
        )
