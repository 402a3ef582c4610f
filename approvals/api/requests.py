"""REST endpoints of approval requests; services and selectors check permissions, not the views."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

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
from approvals.requests import deadlines, queries
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
    def approval(self, public_id: str) -> ApprovalRequest:
        """Return a request that the caller may see, to act on it. Raises Http404."""
        try:
            return queries.request_to_act_on(self.user, public_id)
        except ApprovalRequest.DoesNotExist:
            raise Http404 from None

    def detail_response(self, public_id: str, status: int = 200) -> Response:
        try:
            approval = expire_and_load(self.user, public_id)
        except ApprovalRequest.DoesNotExist:
            raise Http404 from None
        return Response(ApprovalDetailSerializer(approval, context=self.context([approval])).data, status)

    def context(self, requests: Sequence[ApprovalRequest]) -> dict[str, Any]:
        return {"viewer": self.user, "private": hidden_from(self.user, requests)}

    def act(
        self,
        request: Request,
        public_id: str,
        serializer: type[StrictSerializer],
        action: Callable[[ApprovalRequest, dict[str, Any]], object],
        *,
        status: int = 200,
    ) -> Response:
        """Call `action` with the request and the valid body, once per Idempotency-Key; respond with the new state."""

        def first() -> Response:
            body = self.body(serializer)
            action(self.approval(public_id), body)
            return self.detail_response(public_id, status)

        return respond_once(request, first, lambda _: self.detail_response(public_id, status))


class ApprovalList(ApprovalEndpoint):
    """The approval requests."""

    required_scopes: ClassVar = {"GET": ["approvals:read"]}

    @extend_schema("approvals_list", parameters=[ApprovalQuery], responses=page_schema(ApprovalSerializer))
    def get(self, request: Request) -> Response:
        """List requests: waiting ones oldest first, all others newest first."""
        query, at = self.page_query(ApprovalQuery)
        page = page_for(self.user, RequestFilters(**query), at)
        serializer = ApprovalSerializer(context=self.context(page.rows))
        return paginated_response(request, page, serializer.to_representation)


class ApprovalDetail(ApprovalEndpoint):
    """One approval request."""

    required_scopes: ClassVar = {"GET": ["approvals:read"]}

    @extend_schema("approvals_read", responses=ApprovalDetailSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one request with its arguments, preview, policy, votes and precedent."""
        return self.detail_response(public_id)


class ApprovalReviews(ApprovalEndpoint):
    """The reviews of one request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema(
        "approvals_review", parameters=[IDEMPOTENCY_KEY], request=ReviewBody, responses={201: ApprovalDetailSerializer}
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Review a request, identified by the digest you saw. The review takes effect immediately."""

        def review(approval: ApprovalRequest, body: dict[str, Any]) -> None:
            hunks = tuple(body.pop("hunks")) if "hunks" in body else None
            decision = Decision(ReviewVerdict(body.pop("verdict")), hunks=hunks, **body)
            decide(approval, by=self.user, decision=decision)

        return self.act(request, public_id, ReviewBody, review, status=201)


class ApprovalUndo(ApprovalEndpoint):
    """Undo of a decision."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema(
        "approvals_undo", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Undo your own decision before it takes effect; 409 afterwards."""
        return self.act(request, public_id, RemarkBody, lambda approval, _: undo_decision(approval, by=self.user))


class ApprovalRevoke(ApprovalEndpoint):
    """Revocation of an approval."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema(
        "approvals_revoke", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Revoke an unused approval; the call fails. 409 if the approval was used."""
        return self.act(
            request,
            public_id,
            RemarkBody,
            lambda approval, body: revoke(approval, by=self.user, comment=body["comment"]),
        )


class ApprovalWithdraw(ApprovalEndpoint):
    """Withdrawal of a request."""

    # A requester may withdraw even after losing the role; a token needs one of the two scopes.
    required_scopes: ClassVar = {"POST": ["calls:create", "approvals:decide"]}

    @extend_schema(
        "approvals_withdraw", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Withdraw your own request; the call will not run."""
        return self.act(
            request,
            public_id,
            RemarkBody,
            lambda approval, body: withdraw(approval, by=self.user, reason=body["comment"]),
        )


class CoordinationEndpoint(ApprovalEndpoint):
    """An action on one request that returns the request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}


class ApprovalClaim(CoordinationEndpoint):
    """Claim of a request."""

    @extend_schema(
        "approvals_claim", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Claim a request for 15 minutes. Others see the claim and may still decide."""
        return self.act(request, public_id, RemarkBody, lambda approval, _: coordination.claim(approval, by=self.user))


class ApprovalRelease(CoordinationEndpoint):
    """Release of a claim."""

    @extend_schema(
        "approvals_release", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Release your claim."""
        return self.act(
            request, public_id, RemarkBody, lambda approval, _: coordination.release(approval, by=self.user)
        )


class ApprovalExtend(CoordinationEndpoint):
    """Extension of a request."""

    @extend_schema(
        "approvals_extend", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Extend a request by 30 minutes in its last hour, at most ten times; otherwise 409."""
        return self.act(request, public_id, RemarkBody, lambda approval, _: deadlines.extend(approval, by=self.user))


class ApprovalSnooze(CoordinationEndpoint):
    """Snooze of a request."""

    @extend_schema(
        "approvals_snooze", parameters=[IDEMPOTENCY_KEY], request=SnoozeBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Hide a request from your own lists until a time, at the latest until it expires; null shows it again."""

        def snooze(approval: ApprovalRequest, body: dict[str, Any]) -> None:
            if body["until"] is None:
                coordination.unsnooze(approval, by=self.user)
            else:
                coordination.snooze(approval, by=self.user, until=body["until"])

        return self.act(request, public_id, SnoozeBody, snooze)


class ApprovalDelegate(CoordinationEndpoint):
    """Delegation of a request."""

    @extend_schema(
        "approvals_delegate", parameters=[IDEMPOTENCY_KEY], request=DelegateBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Delegate your review of this request to another person; null ends the delegation."""

        def delegate(approval: ApprovalRequest, body: dict[str, Any]) -> None:
            person = None if body["to"] is None else find_active_user(body["to"])
            if person is None and body["to"] is not None:
                raise ValidationError({"to": ["No active account has this username."]})
            coordination.delegate(approval, by=self.user, to=person)

        return self.act(request, public_id, DelegateBody, delegate)


class ApprovalComments(CoordinationEndpoint):
    """Comments of a request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide", "calls:create"]}

    @extend_schema(
        "approvals_comment", parameters=[IDEMPOTENCY_KEY], request=CommentBody, responses=ApprovalDetailSerializer
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Comment on a request. Comments by agents' tokens are marked as unverified."""
        return self.act(
            request,
            public_id,
            CommentBody,
            lambda approval, body: coordination.comment(approval, by=self.user, text=body["text"]),
        )


class ApprovalBatch(Endpoint):
    """Review of several requests."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema("approvals_batch", parameters=[IDEMPOTENCY_KEY], request=BatchBody, responses=BatchResultSerializer)
    def post(self, request: Request) -> Response:
        """Approve requests of one tool whose policy allows batches, or reject or snooze any requests, up to 100.

        Each request is decided separately; the response has a result for each.
        """

        def first() -> Response:
            body, items = self.body(BatchBody), self._items()
            if body["verdict"] == SNOOZE:
                return self._results_response(snooze_many(self.user, body["until"], items))
            return self._results_response(decide_many(self.user, body["verdict"], body["comment"], items, "rest"))

        return respond_once(request, first, lambda _: self._results_response(batch_status(self.user, self._items())))

    def _items(self) -> list[BatchItem]:
        return [BatchItem(**item) for item in self.body(BatchBody)["items"]]

    def _results_response(self, results: list[BatchItemResult]) -> Response:
        return Response(BatchResultSerializer({"results": results}).data)


MAX_PATH = 1000


class SecretPathBody(StrictSerializer):
    """The path of a secret."""

    path = StrictTextField(max_length=MAX_PATH, help_text="Dotted, relative to the arguments.")


class SecretSerializer(serializers.Serializer[Any]):
    """One secret."""

    path = serializers.CharField()
    value = serializers.JSONField()


class ApprovalReveal(ApprovalEndpoint):
    """Reveal of a secret in a request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema("approvals_reveal", request=SecretPathBody, responses=SecretSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Reveal one redacted value to users who may decide the request, and to administrators. Audited.

        An Idempotency-Key is ignored, because the response is not stored.
        """
        path = self.body(SecretPathBody)["path"]
        value = reveal_secret(self.approval(public_id), path, by=self.user)
        return Response({"path": path, "value": value}, headers={"Cache-Control": "no-store"})
