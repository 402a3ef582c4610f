"""Queries for approval requests; each includes the viewer's access. Never writes."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import OuterRef, Prefetch, Q, QuerySet, Subquery

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
from approvals.policies.history import findings_of
from approvals.states import END_SENTENCES, REVIEWED, VERDICT_PHRASES, RequestStatus, ReviewVerdict
from catalog.access.roles import agent_token_of, can_see_all, user_display_name
from catalog.core import clock
from catalog.models import Call, CallRequester, ToolVersion
from catalog.ui.labels import format_time_ago


@dataclass(frozen=True, slots=True)
class EarlierCalls:
    """Calls that a rule found when it looked back: the newest that the viewer may read, newest first.

    `count` is the number of like calls with this one, None if the rule does not count; `others` is how many calls are
    not listed.
    """

    count: int | None
    calls: Sequence[Call]
    others: int


HIDDEN_PRE_APPROVALS = Q(is_early=True, ready_at=None, decided_at=None)
"""Condition for undecided pre-approvals, which are in no list and no count until their step is ready."""


def requests_for(viewer: User) -> QuerySet[ApprovalRequest]:
    """Return the requests the viewer may see: all if they have a role, else those they made or were delegated."""
    requests = ApprovalRequest.objects.all()
    if can_see_all(viewer):
        return requests
    token = agent_token_of(viewer)
    if token is not None:
        return requests.filter(call__token=token)
    # Read by two indexes. The person of `call.requested_by`, which has none, is always among the requesters.
    own = CallRequester.objects.filter(user=viewer.pk).values("call")
    handed = Delegation.objects.filter(to=viewer.pk).values("request")
    return requests.filter(Q(call__in=own) | Q(pk__in=handed))


def pending_for(viewer: User) -> QuerySet[ApprovalRequest]:
    """Return the requests that can be answered: pending, not past their deadline, and no pre-approvals."""
    waiting = requests_for(viewer).filter(status=RequestStatus.PENDING)
    # Phrased as an exclusion so that SQLite uses the index of the queue instead of the one on expires_at.
    return waiting.exclude(expires_at__lte=clock.now()).exclude(HIDDEN_PRE_APPROVALS)


def request_for(viewer: User, public_id: str) -> ApprovalRequest:
    """Return one request with the relations for its page. Raises ApprovalRequest.DoesNotExist if not visible.

    `audit_seq` is the number of the newest audit entry that the result reflects.
    """
    newest = Instance.objects.values("audit_seq")[:1]
    requests = with_snooze(with_related(requests_for(viewer)), viewer).annotate(audit_seq=Subquery(newest))
    return requests.get(public_id=public_id)


def request_to_act_on(viewer: User, public_id: str) -> ApprovalRequest:
    """Return one request to decide. Raises ApprovalRequest.DoesNotExist if not visible."""
    related = ("call__requested_by", "tool_version__tool", "policy_revision__policy")
    return requests_for(viewer).select_related(*related).prefetch_related("call__requesters").get(public_id=public_id)


def with_snooze(requests: QuerySet[ApprovalRequest], viewer: User) -> QuerySet[ApprovalRequest]:
    """Annotate each request with `snoozed_until` of the viewer; None if they never snoozed it."""
    own = Snooze.objects.filter(request=OuterRef("pk"), person=viewer.pk)
    return requests.annotate(snoozed_until=Subquery(own.values("until")[:1]))


def waiting_count(user: User) -> int:
    """Return the number of requests in `pending_for`."""
    return pending_for(user).count()


ENVELOPE_OF_CALL = ("call__proposed_envelope", "call__envelope_mismatch__envelope")
"""Relations to the envelope that a call proposes, or outside of which it fell."""


def with_related(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Load the relations of requests in a fixed number of queries."""
    related = (
        *("call__requested_by", "call__token", "tool_version__tool__source"),
        *ENVELOPE_OF_CALL,
        *("policy_revision__policy", "superseded_by"),
    )
    unused = [f"tool_version__tool__source__{name}" for name in ("document", "secrets", "tool_settings")]
    return _prefetch_all(requests.select_related(*related, "claimed_by").defer(*unused))


PERSON_FIELDS = ("username", "first_name", "last_name")
LISTED_REQUEST_FIELDS = (
    *(field.name for field in ApprovalRequest._meta.concrete_fields if not field.is_relation),
    *("policy_revision", "tool_version", "superseded_by__public_id"),
    *(f"call__{name}" for name in ("public_id", "tool_name", "plan_ref", "step_ref", "reason", "token__name")),
    *("call__proposed_envelope__public_id", "call__envelope_mismatch__mismatch"),
    "call__envelope_mismatch__envelope__public_id",
    *(f"{person}__{name}" for person in ("claimed_by", "call__requested_by") for name in PERSON_FIELDS),
)


def with_list_related(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Load the columns for lists of requests; rules and tools, which many requests share, are loaded once."""
    related = ("call__requested_by", "call__token", "superseded_by", "claimed_by", *ENVELOPE_OF_CALL)
    listed = requests.select_related(*related).only(*LISTED_REQUEST_FIELDS)
    return _prefetch_all(listed).prefetch_related(
        Prefetch("tool_version", ToolVersion.objects.select_related("tool")),
        Prefetch("policy_revision", PolicyRevision.objects.select_related("policy")),
    )


def _prefetch_all(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Prefetch the related rows; the texts of rounds are loaded only once."""
    reviews = Review.objects.select_related("person", "on_behalf_of", "round")
    return requests.prefetch_related(
        "call__requesters",
        Prefetch("rounds", Round.objects.select_related("editor")),
        Prefetch("reviews", reviews.defer("round__arguments", "round__preview").order_by("id")),
        Prefetch("delegations", Delegation.objects.select_related("by", "to").order_by("id")),
        Prefetch("comments", Comment.objects.select_related("person").order_by("id")),
    )


def current_round(request: ApprovalRequest) -> Round:
    return next(round_ for round_ in request.rounds.all() if round_.number == request.round_number)


def last_review(request: ApprovalRequest) -> Review | None:
    """Return the last review that counts, with its person loaded; None if there is none."""
    counting = [review for review in request.reviews.all() if review.undone_at is None]
    return max(counting, key=lambda review: review.pk, default=None)


def is_last_decision(review: Review) -> bool:
    """Return True if the reviewer has made no later decision, apart from undone ones and those of the same batch."""
    later = Review.objects.filter(person=review.person_id, undone_at=None, pk__gt=review.pk)
    return not (later.exclude(batch=review.batch) if review.batch else later).exists()


def answered_by(request: ApprovalRequest) -> str:
    """Return the name of the reviewer whose answer led to the current status; empty for any other status."""
    review = last_review(request) if request.status in REVIEWED else None
    return user_display_name(review.person) if review else ""


def counted_approvals(round_: Round) -> list[Review]:
    """Return the approvals that count in a round, with their people loaded."""
    reviews = round_.reviews.filter(verdict=ReviewVerdict.APPROVE, undone_at=None)
    return list(reviews.select_related("person", "on_behalf_of").order_by("id"))


def status_sentence(request: ApprovalRequest) -> str:
    call = request.call
    if request.status in _WITHDRAWN_SENTENCES and call.message and call.finished_at:
        return f"{_WITHDRAWN_SENTENCES[request.status]} {format_time_ago(call.finished_at)}. {call.message}"
    sentence = END_SENTENCES.get(request.status)
    if sentence is not None:
        return sentence
    review = last_review(request)
    if request.status == RequestStatus.PENDING or review is None:
        return "This request is waiting for an answer."
    started = ", and the call was started" if request.status == RequestStatus.CONSUMED else ""
    done = VERDICT_PHRASES[review.verdict].format("this")
    return f"{user_display_name(review.person)} {done} {format_time_ago(review.at)}{started}."


_WITHDRAWN_SENTENCES: dict[str, str] = {
    RequestStatus.REVOKED: "The approval was revoked",
    RequestStatus.WITHDRAWN: "This request was withdrawn",
}
"""Beginnings of sentences that continue with the time and the message stored on the call."""


MAX_REQUESTS_AUDITED = 1000
"""Maximum number of audit entries read to find changed requests; older entries are not considered."""


def requests_audited_since(viewer: User, number: int) -> QuerySet[ApprovalRequest]:
    """Return the visible requests that have audit entries after the entry `number`."""
    newest = AuditEntry.objects.filter(seq__gt=number).order_by("-seq")
    audited = set(newest.values_list("object_ref", flat=True)[:MAX_REQUESTS_AUDITED])
    # An entry about a replacement names only the new request, so include the request it replaced.
    replaced = ApprovalRequest.objects.filter(superseded_by__public_id__in=audited).values_list("public_id", flat=True)
    return requests_for(viewer).filter(public_id__in=audited.union(replaced))


def earlier_calls(request: ApprovalRequest, viewer: User) -> EarlierCalls | None:
    """Return the calls because of which a rule holds this one; None if the rule does not look back."""
    revision = request.policy_revision
    if not revision.looks_back:
        return None
    found = [each for each in findings_of(request.call) if each.revision_id == revision.pk and each.fits]
    if not found:
        return None
    finding = found[-1]  # of the arguments as they were last edited
    total = len(finding.calls) if finding.count is None else finding.count - 1
    calls = Call.objects.filter(pk__in=finding.calls).order_by("-pk")
    if not can_see_all(viewer):
        token = agent_token_of(viewer)
        calls = calls.filter(requested_by=viewer.pk) if token is None else calls.filter(token=token)
    listed = list(calls.only("public_id", "tool_name", "plan_ref", "step_ref", "created_at"))
    return EarlierCalls(finding.count, listed, total - len(listed))
