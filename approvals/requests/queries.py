"""Approval requests as a user may see them: access is part of every query. Never writes."""

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet, Subquery

from approvals.models import (
    ApprovalRequest,
    AuditEntry,
    Comment,
    Delegation,
    Instance,
    PolicyRevision,
    Review,
    Round,
    Snooze,
)
from approvals.states import END_SENTENCES, REVIEWED, VERDICT_PHRASES, RequestStatus, ReviewVerdict
from catalog.access.roles import agent_token_of, can_see_all, user_display_name
from catalog.core import clock
from catalog.models import CallRequester, ToolVersion
from catalog.ui.labels import format_time_ago

HIDDEN_PRE_APPROVALS = Q(is_early=True, ready_at=None, decided_at=None)
"""Of a request that was asked before its step is ready: it is in no list and no count until then."""


def requests_for(viewer: User) -> QuerySet[ApprovalRequest]:
    """Return the requests the viewer may see: all with any role, else those about their own calls or handed to them."""
    return (
        ApprovalRequest.objects.all()
        if can_see_all(viewer)
        else ApprovalRequest.objects.filter(_own_or_delegated(viewer))
    )


def _own_or_delegated(viewer: User) -> Q:
    token = agent_token_of(viewer)
    if token is not None:
        return Q(call__token=token)
    asked = CallRequester.objects.filter(call=OuterRef("call"), user=viewer.pk)
    handed = Delegation.objects.filter(request=OuterRef("pk"), to=viewer.pk)
    return Q(call__requested_by=viewer.pk) | Q(Exists(asked)) | Q(Exists(handed))


def pending_for(viewer: User) -> QuerySet[ApprovalRequest]:
    """Return what can be answered still: neither what nobody has marked as expired yet, nor what is asked early."""
    waiting = requests_for(viewer).filter(status=RequestStatus.PENDING)
    # Nearly all that waits has time left: said so, SQLite reads the index of the queue and not that of the time left.
    return waiting.exclude(expires_at__lte=clock.now()).exclude(HIDDEN_PRE_APPROVALS)


def request_for(viewer: User, public_id: str) -> ApprovalRequest:
    """Return one request with all that a page shows of it. Raises ApprovalRequest.DoesNotExist when not visible.

    What the audit log tells up to its entry `told_up_to` is in what is shown.
    """
    newest = Instance.objects.values("audit_seq")[:1]
    requests = with_snooze(with_related(requests_for(viewer)), viewer).annotate(told_up_to=Subquery(newest))
    return requests.get(public_id=public_id)


def request_to_act_on(viewer: User, public_id: str) -> ApprovalRequest:
    """Return one request with what judging an answer to it reads. Raises ApprovalRequest.DoesNotExist when not visible.

    Its rounds, reviews and thread are read when an action asks for them.
    """
    related = ("call__requested_by", "tool_version__tool", "policy_revision__policy")
    return requests_for(viewer).select_related(*related).prefetch_related("call__requesters").get(public_id=public_id)


def with_snooze(requests: QuerySet[ApprovalRequest], viewer: User) -> QuerySet[ApprovalRequest]:
    """Let each request have `snoozed_until`: until when the viewer does not want to see it; None for who never said."""
    own = Snooze.objects.filter(request=OuterRef("pk"), person=viewer.pk)
    return requests.annotate(snoozed_until=Subquery(own.values("until")[:1]))


def waiting_count(user: User) -> int:
    """Return how many requests wait that the user may see: the length of `pending_for`."""
    return pending_for(user).count()


def with_related(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Load a request's relations: a page costs the same few queries however many requests it shows."""
    related = ("call__requested_by", "call__token", "tool_version__tool", "policy_revision__policy", "superseded_by")
    return _prefetch_all(requests.select_related(*related, "claimed_by"))


PERSON_FIELDS = ("username", "first_name", "last_name")
LISTED_REQUEST_FIELDS = (
    *(field.name for field in ApprovalRequest._meta.concrete_fields if not field.is_relation),
    *("policy_revision", "tool_version", "superseded_by__public_id"),
    *(f"call__{name}" for name in ("public_id", "tool_name", "plan_ref", "step_ref", "reason", "token__name")),
    *(f"{person}__{name}" for person in ("claimed_by", "call__requested_by") for name in PERSON_FIELDS),
)


def with_list_related(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Load what a list shows of requests: a rule or a tool, which many of them share, is read once for all."""
    listed = requests.select_related("call__requested_by", "call__token", "superseded_by", "claimed_by").only(
        *LISTED_REQUEST_FIELDS
    )
    return _prefetch_all(listed).prefetch_related(
        Prefetch("tool_version", ToolVersion.objects.select_related("tool")),
        Prefetch("policy_revision", PolicyRevision.objects.select_related("policy")),
    )


def _prefetch_all(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Load what of other tables belongs to each request, the texts of its rounds once."""
    reviews = Review.objects.select_related("person", "on_behalf_of", "round")
    return requests.prefetch_related(
        "call__requesters",
        Prefetch("rounds", Round.objects.select_related("editor")),
        Prefetch("reviews", reviews.defer("round__arguments", "round__preview").order_by("id")),
        Prefetch("delegations", Delegation.objects.select_related("by", "to").order_by("id")),
        Prefetch("comments", Comment.objects.select_related("person").order_by("id")),
    )


def current_round(request: ApprovalRequest) -> Round:
    """Return the round that people judge now."""
    return next(round_ for round_ in request.rounds.all() if round_.number == request.round_number)


def last_review(request: ApprovalRequest) -> Review | None:
    """Return the last review that counts, its person loaded; None while there is none."""
    counting = [review for review in request.reviews.all() if review.undone_at is None]
    return max(counting, key=lambda review: review.pk, default=None)


def answered_by(request: ApprovalRequest) -> str:
    """Name who answered, where the request stands as they left it; empty for every other end."""
    review = last_review(request) if request.status in REVIEWED else None
    return user_display_name(review.person) if review else ""


def counted_approvals(round_: Round) -> list[Review]:
    """Return the approvals that count in a round, their people loaded."""
    reviews = round_.reviews.filter(verdict=ReviewVerdict.APPROVE, undone_at=None)
    return list(reviews.select_related("person", "on_behalf_of").order_by("id"))


def status_sentence(request: ApprovalRequest) -> str:
    """Say where the request stands: who answered, what and when."""
    call = request.call
    if request.status in _WITHDRAWN_SENTENCES and call.message and call.finished_at:
        return f"{_WITHDRAWN_SENTENCES[request.status]} {format_time_ago(call.finished_at)}. {call.message}"
    sentence = END_SENTENCES.get(request.status)
    if sentence is not None:
        return sentence
    review = last_review(request)
    if request.status == RequestStatus.PENDING or review is None:
        return "This request waits for an answer."
    started = ", and it was started" if request.status == RequestStatus.CONSUMED else ""
    done = VERDICT_PHRASES[review.verdict].format("this")
    return f"{user_display_name(review.person)} {done} {format_time_ago(review.at)}{started}."


_WITHDRAWN_SENTENCES: dict[str, str] = {
    RequestStatus.REVOKED: "The approval was taken back",
    RequestStatus.WITHDRAWN: "This no longer waits, since it was withdrawn",
}
"""What leads the words of who took it back, which the call keeps."""


MAX_REQUESTS_AUDITED = 1000
"""Entries that are gone through for who was away: of one who was away for longer, the older ones are not missed."""


def requests_audited_since(viewer: User, number: int) -> QuerySet[ApprovalRequest]:
    """Return the requests that the viewer may see and that the newest entries above `number` tell of."""
    newest = AuditEntry.objects.filter(seq__gt=number).order_by("-seq")
    told_of = set(newest.values_list("object_ref", flat=True)[:MAX_REQUESTS_AUDITED])
    # Of a request in another's place only the new one is told; it says of the old one that it is over.
    replaced = ApprovalRequest.objects.filter(superseded_by__public_id__in=told_of).values_list("public_id", flat=True)
    return requests_for(viewer).filter(public_id__in=told_of.union(replaced))
