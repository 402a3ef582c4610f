"""The paths of the desk: claim, release, snooze, delegate and comment, one request or many at once."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api import ApprovalEndpoint
from approvals.desk_serializers import BatchBody, BatchResultSerializer, CommentBody, DelegateBody, SnoozeBody
from approvals.models import ApprovalRequest
from approvals.reviews import coordination
from approvals.reviews.batch import SNOOZE, Item, ItemResult, decide_many, snooze_many, standing
from approvals.serializers import ApprovalDetailSerializer, RemarkBody
from catalog.access.roles import person_named
from catalog.rest.idempotency import answer_once
from catalog.rest.serializers import StrictSerializer
from catalog.rest.views import Endpoint

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class DeskEndpoint(ApprovalEndpoint):
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

        return answer_once(request, first, lambda _: self.shown(public_id))


class ApprovalClaim(DeskEndpoint):
    """Says that one looks after a request."""

    @extend_schema("approvals_claim", request=RemarkBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Claim a request for a quarter of an hour; others are told, and may decide it all the same."""
        return self.act(request, public_id, RemarkBody, lambda held, _: coordination.claim(held, by=self.user))


class ApprovalRelease(DeskEndpoint):
    """Gives a claim back."""

    @extend_schema("approvals_release", request=RemarkBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Give one's claim back."""
        return self.act(request, public_id, RemarkBody, lambda held, _: coordination.release(held, by=self.user))


class ApprovalExtend(DeskEndpoint):
    """Gives a request more time."""

    @extend_schema("approvals_extend", request=RemarkBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Give a request half an hour more in its last hour, at most ten times; 409 before that and afterwards."""
        return self.act(request, public_id, RemarkBody, lambda held, _: coordination.extend(held, by=self.user))


class ApprovalSnooze(DeskEndpoint):
    """Puts a request off, for oneself."""

    @extend_schema("approvals_snooze", request=SnoozeBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Keep a request out of one's own lists until then, at the latest until it expires; null brings it back."""
        return self.act(request, public_id, SnoozeBody, self._snooze)

    def _snooze(self, held: ApprovalRequest, body: dict[str, Any]) -> None:
        if body["until"] is None:
            coordination.wake(held, by=self.user)
        else:
            coordination.snooze(held, by=self.user, until=body["until"])


class ApprovalDelegate(DeskEndpoint):
    """Lets someone else answer."""

    @extend_schema("approvals_delegate", request=DelegateBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Let a person answer this one request in one's place, as long as one might; null takes that back."""
        return self.act(request, public_id, DelegateBody, self._delegate)

    def _delegate(self, held: ApprovalRequest, body: dict[str, Any]) -> None:
        coordination.delegate(held, by=self.user, to=None if body["to"] is None else _person(body["to"]))


class ApprovalComments(DeskEndpoint):
    """The thread of a request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide", "calls:create"]}

    @extend_schema("approvals_comment", request=CommentBody, responses=ApprovalDetailSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Say something in the thread: it decides nothing. What an agent's token says is marked as unverified."""
        return self.act(request, public_id, CommentBody, self._comment)

    def _comment(self, held: ApprovalRequest, body: dict[str, Any]) -> None:
        coordination.comment(held, by=self.user, text=body["text"])


class ApprovalBatch(Endpoint):
    """One answer to many requests."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema("approvals_batch", request=BatchBody, responses=BatchResultSerializer)
    def post(self, request: Request) -> Response:
        """Approve requests of one tool whose policy allows that, or reject or put off any, at most 100.

        Each is decided by itself; the answer says of each what became of it.
        """
        return answer_once(request, self._answer, lambda _: self._told(standing(self.user, self._items())))

    def _answer(self) -> Response:
        body, items = self.body(BatchBody), self._items()
        if body["verdict"] == SNOOZE:
            return self._told(snooze_many(self.user, body["until"], items))
        return self._told(decide_many(self.user, body["verdict"], body["comment"], items, "rest"))

    def _items(self) -> list[Item]:
        return [Item(**item) for item in self.body(BatchBody)["items"]]

    def _told(self, results: list[ItemResult]) -> Response:
        return Response(BatchResultSerializer({"results": results}).data)


def _person(username: str) -> "User":
    found = person_named(username)
    if found is None:
        raise ValidationError({"to": ["Nobody with an account in use has this username."]})
    return found
