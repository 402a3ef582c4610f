"""Approval requests as someone may see them: the right to see is part of every query. Never writes."""

from itertools import takewhile
from typing import TYPE_CHECKING

from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet

from approvals.models import ApprovalRequest, Review, Round
from approvals.policy import Rule, rule_of
from approvals.states import RequestStatus, Verdict
from catalog import clock
from catalog.access import agent_token_of, groups_of, name_of, sees_all
from catalog.models import CallRequester
from catalog.words import say_ago

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ANSWERED = (RequestStatus.APPROVED, RequestStatus.CONSUMED, RequestStatus.REJECTED)


def requests_for(viewer: "User") -> QuerySet[ApprovalRequest]:
    """Return the requests the viewer may see: all with any role, else those about their own calls."""
    return ApprovalRequest.objects.all() if sees_all(viewer) else ApprovalRequest.objects.filter(_own(viewer))


def _own(viewer: "User") -> Q:
    token = agent_token_of(viewer)
    if token is not None:
        return Q(call__token=token)
    asked = CallRequester.objects.filter(call=OuterRef("call"), user=viewer.pk)
    return Q(call__requested_by=viewer.pk) | Q(Exists(asked))


def queue_for(viewer: "User") -> QuerySet[ApprovalRequest]:
    """Return what waits for an answer, oldest first, with all that a page shows of it."""
    return whole(pending_for(viewer)).order_by("opened_at", "id")


def pending_for(viewer: "User") -> QuerySet[ApprovalRequest]:
    """Return what can be answered still: not what nobody has marked as expired yet."""
    return requests_for(viewer).filter(status=RequestStatus.PENDING, expires_at__gt=clock.now())


def request_for(viewer: "User", public_id: str) -> ApprovalRequest:
    """Return one request with all that a page shows of it. Raises ApprovalRequest.DoesNotExist when not visible."""
    return whole(requests_for(viewer)).get(public_id=public_id)


def waiting_count(user: "User") -> int:
    """Return how many requests wait that the user may see: the length of `queue_for`."""
    return queue_for(user).count()


def whole(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Load a request's relations: a page costs the same few queries however many requests it shows."""
    reviews = Review.objects.select_related("person", "round").order_by("id")
    related = ("call__requested_by", "call__token", "tool_version__tool", "policy_revision__policy", "superseded_by")
    return requests.select_related(*related).prefetch_related(
        "call__requesters", "rounds", Prefetch("reviews", reviews)
    )


def current_round(request: ApprovalRequest) -> Round:
    """Return the round that people judge now."""
    return next(round_ for round_ in request.rounds.all() if round_.number == request.round_number)


def last_review(request: ApprovalRequest) -> Review | None:
    """Return the last review that counts, its person loaded; None while there is none."""
    counting = [review for review in request.reviews.all() if review.undone_at is None]
    return max(counting, key=lambda review: review.pk, default=None)


def counted_approvals(round_: Round) -> list[Review]:
    """Return the approvals that count in a round, their people loaded."""
    reviews = round_.reviews.filter(verdict=Verdict.APPROVE, undone_at=None)
    return list(reviews.select_related("person").order_by("id"))


def precedent_for(request: ApprovalRequest, limit: int = 5) -> list[ApprovalRequest]:
    """Return the last answered requests of the same tool, newest first: for who may see them all."""
    same_tool = ApprovalRequest.objects.filter(tool_version__tool=request.tool_version.tool_id)
    return list(whole(same_tool.filter(status__in=ANSWERED)).exclude(pk=request.pk).order_by("-decided_at")[:limit])


def may_decide(request: ApprovalRequest, user: "User", rule: Rule | None = None) -> str | None:
    """Return None when the user may decide the request, else a sentence that says why not and who may.

    `rule` is judged by in place of the one that held the request.
    """
    rule = rule or rule_of(request.policy_revision)
    if agent_token_of(user) is not None:
        return f"Agents' tokens never decide. {_who_may(rule)}"
    if not user.is_active:
        return f"This account is switched off. {_who_may(rule)}"
    if groups_of(user).isdisjoint(rule.groups):
        return _who_may(rule)
    if not rule.allow_self_review and user.pk in {each.user_id for each in request.call.requesters.all()}:
        return f"You asked for this call, so someone else must decide it. {_who_may(rule)}"
    if request.round_number > 1 and _edited(request, user):
        return f"You changed what is asked, so someone else must decide it. {_who_may(rule)}"
    return None


def _edited(request: ApprovalRequest, user: "User") -> bool:
    """Say whether an edit of this person is in what stands now, and bars them: an earlier one does.

    The last edit bars its author only where several people must agree. A round without an editor is as it was asked.
    """
    rounds = sorted(request.rounds.all(), key=lambda round_: round_.number, reverse=True)
    standing = list(takewhile(lambda round_: round_.editor_id is not None, rounds))
    barring = standing if standing and standing[0].quorum > 1 else standing[1:]
    return user.pk in {round_.editor_id for round_ in barring}


def _who_may(rule: Rule) -> str:
    return f"Only a member of {' or '.join(rule.groups)} who did not ask for the call may decide."


def status_sentence(request: ApprovalRequest) -> str:
    """Say where the request stands: who answered, what and when."""
    sentence = _ENDS.get(request.status)
    if sentence is not None:
        return sentence
    review = last_review(request)
    if request.status == RequestStatus.PENDING or review is None:
        return "This request waits for an answer."
    verb = "rejected" if request.status == RequestStatus.REJECTED else "approved"
    started = ", and it was started" if request.status == RequestStatus.CONSUMED else ""
    return f"{name_of(review.person)} {verb} this {say_ago(review.at)}{started}."


_ENDS: dict[str, str] = {
    RequestStatus.EXPIRED: "This request has expired: its time was over before the call could start.",
    RequestStatus.WITHDRAWN: "This request was withdrawn.",
    RequestStatus.INVALIDATED: "This request is no longer valid: what was asked for has changed.",
}
