"""What the paths of the desk take, and what they add to a request as the API shows it."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from approvals.models import ApprovalRequest
from approvals.reviews.batch import MOST_ITEMS, SNOOZE, VERDICTS, ItemResult
from approvals.states import Verdict
from catalog.core import clock
from catalog.rest.serializers import MAX_ID, Choice, MomentField, StrictSerializer, Text


class SnoozeBody(StrictSerializer):
    """Until when one does not want to see a request; null takes it back into one's lists."""

    until = MomentField(allow_null=True)


class DelegateBody(StrictSerializer):
    """Who may answer in one's place; null takes that back."""

    to = Text(max_length=150, allow_null=True, help_text="A username.")


class CommentBody(StrictSerializer):
    """Something to say."""

    text = Text(max_length=None, trim_whitespace=False, help_text="At most 4,000 characters.")


class ItemBody(StrictSerializer):
    """One request of a batch, and what was seen of it."""

    id = Text(max_length=MAX_ID)
    seen_digest = Text(max_length=64, required=False, allow_blank=True, default="")


class BatchBody(StrictSerializer):
    """One answer to many requests; `until` goes with snooze alone."""

    verdict = Choice(choices=VERDICTS)
    comment = Text(required=False, allow_blank=True, default="")
    until = MomentField(required=False)
    items = serializers.ListField(child=ItemBody(), min_length=1, max_length=MOST_ITEMS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Ask for the time that a snooze needs, and for nothing that it does not."""
        snoozes = attrs["verdict"] == SNOOZE
        if snoozes and "until" not in attrs:
            raise serializers.ValidationError({"until": ["Say until when."]}, code="required")
        if not snoozes and "until" in attrs:
            raise serializers.ValidationError({"until": ["A time goes with snooze alone. Leave it out."]})
        return attrs


class ItemResultSerializer(serializers.Serializer[Any]):
    """What became of an item: the request's status, or `conflict`, `forbidden`, `invalid`, `not_found`, `restored`."""

    id = serializers.CharField()
    status = serializers.CharField()
    detail = serializers.CharField(required=False, help_text="Why nothing was recorded; absent when it was.")

    def to_representation(self, instance: ItemResult) -> dict[str, Any]:
        """Leave the detail out where there is none."""
        return {name: value for name, value in asdict(instance).items() if name != "detail" or value}


class BatchResultSerializer(serializers.Serializer[Any]):
    """What became of each item, in their order."""

    results = ItemResultSerializer(many=True)


class RemarkSerializer(serializers.Serializer[Any]):
    """One thing somebody said about a request: with a review, which then names its verdict, or beside any."""

    by = serializers.CharField()
    text = serializers.CharField()
    at = serializers.DateTimeField()
    verdict = serializers.ChoiceField(choices=Verdict.values, allow_null=True)
    is_agent = serializers.BooleanField(help_text="Said through an agent's token: not verified.")


class DelegationSerializer(serializers.Serializer[Any]):
    """Who may answer in whose place."""

    by = serializers.CharField(source="by.username")
    to = serializers.CharField(source="to.username")
    at = serializers.DateTimeField()


class OverlaySerializer(serializers.Serializer[Any]):
    """What is laid over a request; the context names the `viewer`, whose own `snoozed_until` it is."""

    claimed_by = serializers.SerializerMethodField()
    claimed_until = serializers.SerializerMethodField()
    snoozed_until = serializers.SerializerMethodField()
    delegated_to = serializers.SerializerMethodField(help_text="Who may answer in the viewer's place.")
    delegations = DelegationSerializer(many=True)
    escalated_to = serializers.SerializerMethodField(help_text="The group asked because nobody answered.")
    twins = serializers.SerializerMethodField(help_text="Other waiting requests for the same call; null: not counted.")
    thread = serializers.SerializerMethodField()

    def get_claimed_by(self, request: ApprovalRequest) -> str | None:
        """Return who looks after it now."""
        return request.claimed_by.get_username() if request.claimed_by and _is_ahead(request.claimed_until) else None

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_claimed_until(self, request: ApprovalRequest) -> Any:
        """Return until when."""
        return _ahead(request.claimed_until)

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_snoozed_until(self, request: ApprovalRequest) -> Any:
        """Return until when the viewer does not want to see it."""
        return _ahead(getattr(request, "snoozed_until", None))

    def get_delegated_to(self, request: ApprovalRequest) -> str | None:
        """Return whom the viewer asked to answer in their place."""
        viewer = self.context["viewer"].pk
        given = (each.to.get_username() for each in request.delegations.all() if each.by_id == viewer)
        return next(given, None)

    def get_escalated_to(self, request: ApprovalRequest) -> str | None:
        """Return the group."""
        return request.escalated_to or None

    def get_twins(self, request: ApprovalRequest) -> int | None:
        """Return how many others ask for the same."""
        twins: int | None = getattr(request, "twins", None)
        return twins

    @extend_schema_field(RemarkSerializer(many=True))
    def get_thread(self, request: ApprovalRequest) -> Any:
        """Return all that was said, oldest first."""
        return RemarkSerializer(sorted(_said(request), key=lambda each: each["at"]), many=True).data


def _said(request: ApprovalRequest) -> Iterator[dict[str, Any]]:
    for review in request.reviews.all():
        if review.comment:
            said = {"by": review.person.get_username(), "text": review.comment, "at": review.at}
            yield said | {"verdict": review.verdict, "is_agent": False}
    for comment in request.comments.all():
        said = {"by": comment.person.get_username(), "text": comment.text, "at": comment.at}
        yield said | {"verdict": None, "is_agent": comment.is_agent}


def _is_ahead(moment: Any) -> bool:
    return moment is not None and bool(moment > clock.now())


def _ahead(moment: Any) -> Any:
    return serializers.DateTimeField().to_representation(moment) if _is_ahead(moment) else None
