"""The approval and audit paths of the REST API. Nothing here decides who may: services and selectors do."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.audit.queries import AuditFilters, entries_for
from approvals.audit.verification import verify
from approvals.models import ApprovalRequest
from approvals.queue.saved_views import RequestFilters, page_for
from approvals.requests import queries
from approvals.requests.deadlines import seen_by
from approvals.requests.lifecycle import withdraw
from approvals.requests.privacy import hidden_from
from approvals.reviews.decisions import Decision, decide, revoke, undo
from approvals.serializers import (
    ApprovalDetailSerializer,
    ApprovalQuery,
    ApprovalSerializer,
    AuditEntrySerializer,
    AuditQuery,
    RemarkBody,
    ReviewBody,
    VerificationSerializer,
)
from approvals.states import Verdict
from catalog.rest.idempotency import answer_once
from catalog.rest.pagination import page_of, page_schema, paged
from catalog.rest.views import Endpoint


class ApprovalEndpoint(Endpoint):
    """What the approval paths share."""

    def approval(self, public_id: str) -> ApprovalRequest:
        """Return a request that the caller may see, to act on it; raise Http404."""
        try:
            return queries.request_to_act_on(self.user, public_id)
        except ApprovalRequest.DoesNotExist:
            raise Http404 from None

    def shown(self, public_id: str, status: int = 200) -> Response:
        """Answer with the request as it is now."""
        try:
            approval = seen_by(self.user, public_id)
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
        return paged(request, page, shown.to_representation)


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

    @extend_schema("approvals_review", request=ReviewBody, responses={201: ApprovalDetailSerializer})
    def post(self, request: Request, public_id: str) -> Response:
        """Give one's answer, naming the digest one saw; it takes effect at once."""
        return answer_once(request, lambda: self._decide(public_id), lambda _: self.shown(public_id, 201))

    def _decide(self, public_id: str) -> Response:
        body = self.body(ReviewBody)
        hunks = tuple(body.pop("hunks")) if "hunks" in body else None
        decision = Decision(Verdict(body.pop("verdict")), hunks=hunks, **body)
        decide(self.approval(public_id), by=self.user, decision=decision)
        return self.shown(public_id, 201)


class ApprovalUndo(ApprovalEndpoint):
    """Takes a decision back."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema("approvals_undo", request=RemarkBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Take one's own decision back before it takes effect; 409 afterwards."""
        return answer_once(request, lambda: self._undo(public_id), lambda _: self.shown(public_id))

    def _undo(self, public_id: str) -> Response:
        self.body(RemarkBody)
        undo(self.approval(public_id), by=self.user)
        return self.shown(public_id)


class ApprovalRevoke(ApprovalEndpoint):
    """Takes an approval away."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema("approvals_revoke", request=RemarkBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Take an approval away that was not used yet: the call fails; 409 when it was."""
        return answer_once(request, lambda: self._revoke(public_id), lambda _: self.shown(public_id))

    def _revoke(self, public_id: str) -> Response:
        comment = self.body(RemarkBody)["comment"]
        revoke(self.approval(public_id), by=self.user, comment=comment)
        return self.shown(public_id)


class ApprovalWithdraw(ApprovalEndpoint):
    """Takes a request back."""

    # Who asked may take it back, whatever they may do since; a token needs what asking or answering takes.
    required_scopes: ClassVar = {"POST": ["calls:create", "approvals:decide"]}

    @extend_schema("approvals_withdraw", request=RemarkBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Take one's own request back: the call will not run."""
        return answer_once(request, lambda: self._withdraw(public_id), lambda _: self.shown(public_id))

    def _withdraw(self, public_id: str) -> Response:
        comment = self.body(RemarkBody)["comment"]
        withdraw(self.approval(public_id), by=self.user, reason=comment)
        return self.shown(public_id)


class AuditList(Endpoint):
    """The audit log."""

    required_scopes: ClassVar = {"GET": ["audit:read"]}

    @extend_schema("audit_list", parameters=[AuditQuery], responses=page_schema(AuditEntrySerializer))
    def get(self, request: Request) -> Response:
        """List the entries, newest first."""
        query, at = self.page_query(AuditQuery)
        page = page_of(entries_for(self.user, AuditFilters(**query)), order="-seq", at=at)
        return paged(request, page, lambda entry: AuditEntrySerializer(entry).data)


class AuditVerify(Endpoint):
    """The audit log, checked."""

    required_scopes: ClassVar = {"POST": ["audit:read"]}

    @extend_schema("audit_verify", request=None, responses=VerificationSerializer)
    def post(self, request: Request) -> Response:
        """Recompute the chain; `first_bad` names the first entry that is wrong or missing."""
        found = asdict(verify())
        return Response({name: value for name, value in found.items() if value is not None})
