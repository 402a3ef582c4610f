"""Approval requests over REST: list, detail, reviews, coordination, batches, revealing a secret.

Services and selectors check permissions; nothing here does.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.request_serializers import (
    ApprovalDetailSerializer,
    ApprovalQuery,
    ApprovalSerializer,
    BatchBody,
    BatchResultSerializer,
    CommentBody,
    DelegateBody,
    RemarkBody,
    ReviewBody,
    SnoozeBody,
)
from approvals.models import ApprovalRequest
from approvals.queue.saved_views import RequestFilters, page_for
from approvals.requests import queries
from approvals.requests.deadlines import expire_and_load
from approvals.requests.lifecycle import withdraw
from approvals.requests.privacy import hidden_from, reveal_secret
from approvals.reviews import coordination
from approvals.reviews.batch import SNOOZE, BatchItem, BatchItemResult, batch_status, decide_many, snooze_many
from approvals.reviews.decisions import Decision, decide, revoke, undo_decision
from approvals.states import ReviewVerdict
from catalog.access.roles import find_active_user
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginated_response
from catalog.rest.serializers import StrictSerializer, StrictTextField
from catalog.rest.views import Endpoint


class ApprovalEndpoint(Endpoint):
    """Base of the endpoints of approval requests."""

    def approval(self, public_id: str) -> ApprovalRequest:
        """Return a request that the caller may see, to act on it; raise Http404."""
        try:
            return queries.request_to_act_on(self.user, public_id)
        except ApprovalRequest.DoesNotExist:
            raise Http404 from None

    def shown(self, public_id: str, status: int = 200) -> Response:
        """Answer with the request as it is now."""
        try:
            approval = expire_and_load(self.user, public_id)
        except ApprovalRequest.DoesNotExist:
            raise Http404 from None
        return Response(ApprovalDetailSerializer(approval, context=self.context([approval])).data, status)

    def context(self, rows: Sequence[ApprovalRequest]) -> dict[str, Any]:
        """Return what serializers of these requests need to know of the caller."""
        return {"viewer": self.user, "private": hidden_from(self.user, rows)}


class ApprovalList(ApprovalEndpoint):
    """The approval requests."""

    required_scopes: ClassVar = {"GET": ["approvals:read"]}

    @extend_schema("approvals_list", parameters=[ApprovalQuery], responses=page_schema(ApprovalSerializer))
    def get(self, request: Request) -> Response:
        """List the requests: what waits is listed oldest first, everything else newest first."""
        query, at = self.page_query(ApprovalQuery)
        page = page_for(self.user, RequestFilters(**query), at)
        shown = ApprovalSerializer(context=self.context(page.rows))
        return paginated_response(request, page, shown.to_representation)


class ApprovalDetail(ApprovalEndpoint):
    """One approval request."""

    required_scopes: ClassVar = {"GET": ["approvals:read"]}

    @extend_schema("approvals_read", responses=ApprovalDetailSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one request: what would happen, who asks, who must agree."""
        return self.shown(public_id)


class ApprovalReviews(ApprovalEndpoint):
    """The reviews of one request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema(
        "approvals_review", parameters=[IDEMPOTENCY_KEY], request=ReviewBody, responses={201: ApprovalDetailSerializer}
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Give one's answer, naming the digest one saw; it takes effect at once."""
        return respond_once(request, lambda: self._decide(public_id), lambda _: self.shown(public_id, 201))

    def _decide(self, public_id: str) -> Response:
        body = self.body(ReviewBody)
        hunks = tuple(body.pop("hunks")) if "hunks" in body else None
        decision = Decision(ReviewVerdict(body.pop("verdict")), hunks=hunks, **body)
        decide(self.approval(public_id), by=self.user, decision=decision)
        return self.shown(public_id, 201)


class ApprovalUndo(ApprovalEndpoint):
    """Takes a decision back."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema(
        "approvals_undo", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Take one's own decision back before it takes effect; 409 afterwards."""
        return respond_once(request, lambda: self._undo(public_id), lambda _: self.shown(public_id))

    def _undo(self, public_id: str) -> Response:
        self.body(RemarkBody)
        undo_decision(self.approval(public_id), by=self.user)
        return self.shown(public_id)


class ApprovalRevoke(ApprovalEndpoint):
    """Takes an approval away."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema(
        "approvals_revoke", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Take an approval away that was not used yet: the call fails; 409 when it was."""
        return respond_once(request, lambda: self._revoke(public_id), lambda _: self.shown(public_id))

    def _revoke(self, public_id: str) -> Response:
        comment = self.body(RemarkBody)["comment"]
        revoke(self.approval(public_id), by=self.user, comment=comment)
        return self.shown(public_id)


class ApprovalWithdraw(ApprovalEndpoint):
    """Takes a request back."""

    # A requester may withdraw even after losing the role; a token needs the scope for asking or for answering.
    required_scopes: ClassVar = {"POST": ["calls:create", "approvals:decide"]}

    @extend_schema(
        "approvals_withdraw", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Take one's own request back: the call will not run."""
        return respond_once(request, lambda: self._withdraw(public_id), lambda _: self.shown(public_id))

    def _withdraw(self, public_id: str) -> Response:
        comment = self.body(RemarkBody)["comment"]
        withdraw(self.approval(public_id), by=self.user, reason=comment)
        return self.shown(public_id)


class CoordinationEndpoint(ApprovalEndpoint):
    """An action on one request, answered with the request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    def act(
        self,
        request: Request,
        public_id: str,
        body: type[StrictSerializer],
        do: Callable[[ApprovalRequest, dict[str, Any]], object],
    ) -> Response:
        """Do it once for each Idempotency-Key."""

        def first() -> Response:
            given = self.body(body)
            do(self.approval(public_id), given)
            return self.shown(public_id)

        return respond_once(request, first, lambda _: self.shown(public_id))


class ApprovalClaim(CoordinationEndpoint):
    """Says that one looks after a request."""

    @extend_schema(
        "approvals_claim", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Claim a request for a quarter of an hour; others are told, and may decide it all the same."""
        return self.act(request, public_id, RemarkBody, lambda held, _: coordination.claim(held, by=self.user))


class ApprovalRelease(CoordinationEndpoint):
    """Gives a claim back."""

    @extend_schema(
        "approvals_release", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Give one's claim back."""
        return self.act(request, public_id, RemarkBody, lambda held, _: coordination.release(held, by=self.user))


class ApprovalExtend(CoordinationEndpoint):
    """Gives a request more time."""

    @extend_schema(
        "approvals_extend", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Give a request half an hour more in its last hour, at most ten times; 409 before that and afterwards."""
        return self.act(request, public_id, RemarkBody, lambda held, _: coordination.extend(held, by=self.user))


class ApprovalSnooze(CoordinationEndpoint):
    """Puts a request off, for oneself."""

    @extend_schema(
        "approvals_snooze", parameters=[IDEMPOTENCY_KEY], request=SnoozeBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Keep a request out of one's own lists until then, at the latest until it expires; null brings it back."""
        return self.act(request, public_id, SnoozeBody, self._snooze)

    def _snooze(self, held: ApprovalRequest, body: dict[str, Any]) -> None:
        if body["until"] is None:
            coordination.unsnooze(held, by=self.user)
        else:
            coordination.snooze(held, by=self.user, until=body["until"])


class ApprovalDelegate(CoordinationEndpoint):
    """Lets someone else answer."""

    @extend_schema(
        "approvals_delegate", parameters=[IDEMPOTENCY_KEY], request=DelegateBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Let a person answer this one request in one's place, as long as one might; null takes that back."""
        return self.act(request, public_id, DelegateBody, self._delegate)

    def _delegate(self, held: ApprovalRequest, body: dict[str, Any]) -> None:
        coordination.delegate(held, by=self.user, to=None if body["to"] is None else _find_person(body["to"]))


class ApprovalComments(CoordinationEndpoint):
    """The thread of a request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide", "calls:create"]}

    @extend_schema(
        "approvals_comment", parameters=[IDEMPOTENCY_KEY], request=CommentBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Say something in the thread: it decides nothing. What an agent's token says is marked as unverified."""
        return self.act(request, public_id, CommentBody, self._comment)

    def _comment(self, held: ApprovalRequest, body: dict[str, Any]) -> None:
        coordination.comment(held, by=self.user, text=body["text"])


class ApprovalBatch(Endpoint):
    """One answer to many requests."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema("approvals_batch", parameters=[IDEMPOTENCY_KEY], request=BatchBody, responses=BatchResultSerializer)
    def post(self, request: Request) -> Response:
        """Approve requests of one tool whose policy allows that, or reject or put off any, at most 100.

        Each is decided by itself; the answer says of each what became of it.
        """
        return respond_once(request, self._answer, lambda _: self._told(batch_status(self.user, self._items())))

    def _answer(self) -> Response:
        body, items = self.body(BatchBody), self._items()
        if body["verdict"] == SNOOZE:
            return self._told(snooze_many(self.user, body["until"], items))
        return self._told(decide_many(self.user, body["verdict"], body["comment"], items, "rest"))

    def _items(self) -> list[BatchItem]:
        return [BatchItem(**item) for item in self.body(BatchBody)["items"]]

    def _told(self, results: list[BatchItemResult]) -> Response:
        return Response(BatchResultSerializer({"results": results}).data)


def _find_person(username: str) -> User:
    found = find_active_user(username)
    if found is None:
        raise ValidationError({"to": ["Nobody with an account in use has this username."]})
    return found


MAX_PATH = 1000


class SecretPathBody(StrictSerializer):
    """Which secret is to be seen."""

    path = StrictTextField(max_length=MAX_PATH, help_text="Dotted, relative to the arguments.")


class SecretSerializer(serializers.Serializer[Any]):
    """One secret."""

    path = serializers.CharField()
    value = serializers.JSONField()


class ApprovalReveal(ApprovalEndpoint):
    """The secrets redacted in one request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema("approvals_reveal", request=SecretPathBody, responses=SecretSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Show one redacted value to who may decide the request, and to administrators; kept in the audit log.

        Never under an Idempotency-Key: the answer is stored nowhere.
        """
        path = self.body(SecretPathBody)["path"]
        value = reveal_secret(self.approval(public_id), path, by=self.user)
        return Response({"path": path, "value": value}, headers={"Cache-Control": "no-store"})
