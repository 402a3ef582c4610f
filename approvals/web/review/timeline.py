"""Timeline of one request, oldest first, and the progress of its approvals.

Comments and reasons are complete; the templates escape them and mark those that an agent wrote.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from approvals.models import ApprovalRequest, Review
from approvals.policies.eligibility import is_requester
from approvals.policies.quorum import approvals_of, missing_stages
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


EFFECT_NOTES = {
    "skip": gettext_noop("The step is skipped."),
    "cancel_plan": gettext_noop("The rest of the plan is cancelled."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    at: datetime
    who: str = ""
    did: str
    icon: str = "clock"
    hue: str = ""
    text: str = ""
    note: str = ""
    is_agent: bool = False


@dataclass(frozen=True, slots=True)
class StageProgress:
    stage: Stage
    given: int

    @property
    def is_filled(self) -> bool:
        return self.given >= self.stage.count


@dataclass(frozen=True, slots=True)
class QuorumProgress:
    stages: list[StageProgress]
    agreed: list[str]
    lacking: list[Stage]

    @property
    def needed(self) -> int:
        return sum(each.stage.count for each in self.stages)

    @property
    def given(self) -> int:
        return sum(each.given for each in self.stages)


def quorum_progress(request: ApprovalRequest) -> QuorumProgress:
    """Return the progress of a request from `with_related`."""
    lacking = missing_stages(request)
    left = {stage.group: stage.count for stage in lacking}
    shown = [StageProgress(each, each.count - left.get(each.group, 0)) for each in rule_for(request).stages]
    return QuorumProgress(shown, [user_display_name(each.person) for each in approvals_of(request)], lacking)


def timeline_of(request: ApprovalRequest) -> list[TimelineEntry]:
    """Return the timeline of a request from `with_related`, oldest first. Runs no further query."""
    return sorted(_timeline_entries(request), key=lambda moment: moment.at)


def _timeline_entries(request: ApprovalRequest) -> Iterator[TimelineEntry]:
    asked_by = request.call.token.name if request.call.token else ""
    by = asked_by or (user_display_name(request.call.requested_by) if request.call.requested_by else _("Someone"))
    yield TimelineEntry(
        at=request.opened_at,
        who=by,
        did=_("requested approval"),
        icon="bot" if asked_by else "human",
        is_agent=bool(asked_by),
    )
    for each in sorted(request.rounds.all(), key=lambda round_: round_.number):
        if each.number > 1:
            who = user_display_name(each.editor) if each.editor else ""
            did = _("edited the arguments") if who else _("The edit was undone")
            yield TimelineEntry(
                at=each.created_at, who=who, did=did, icon="edit", note=_("Earlier votes no longer count.")
            )
    for review in request.reviews.all():
        yield from _review_entries(request, review)
    for comment in request.comments.all():
        yield TimelineEntry(
            at=comment.at,
            who=user_display_name(comment.person),
            did=_("commented through an agent") if comment.is_agent else _("commented"),
            icon="bot" if comment.is_agent else "human",
            text=comment.text,
            is_agent=comment.is_agent,
        )
    for handed in request.delegations.all():
        did = _("delegated to %(name)s") % {"name": user_display_name(handed.to)}
        yield TimelineEntry(at=handed.at, who=user_display_name(handed.by), did=did, icon="human")
    if request.escalated_at:
        group = request.escalated_to or _("others")
        did = _("Nobody answered in time; %(group)s can answer now too") % {"group": group}
        yield TimelineEntry(at=request.escalated_at, did=did, icon="expired", hue="warn")
    if request.status in END_SENTENCES:
        ended = request.call.finished_at or request.decided_at or request.expires_at
        yield TimelineEntry(at=ended, did=END_SENTENCES[request.status], icon="expired")


def _review_entries(request: ApprovalRequest, review: Review) -> Iterator[TimelineEntry]:
    verdict = ReviewVerdict(review.verdict)
    icon, hue = VERDICT_MARKS[verdict]
    notes = []
    if review.passkey:
        notes.append(_("Signed with a passkey."))
    if review.on_behalf_of:
        notes.append(_("On behalf of %(name)s.") % {"name": user_display_name(review.on_behalf_of)})
    if is_requester(request, review.person):
        notes.append(_("Their own request; the policy allows self-review."))
    if review.round.number != request.round_number:
        notes.append(_("For an earlier version; no longer counts."))
    if review.verdict == ReviewVerdict.REJECT and review.effect != "fail":
        notes.append(_(EFFECT_NOTES[review.effect]))
    yield TimelineEntry(
        at=review.at,
        who=user_display_name(review.person),
        did=str(verdict.label).lower(),
        icon=icon,
        hue=hue if review.counts else "",
        text=review.comment,
        note=" ".join(notes),
    )
    if review.undone_at:
        yield TimelineEntry(at=review.undone_at, who=user_display_name(review.person), did=_("undid this"), icon="undo")
