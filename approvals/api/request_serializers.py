"""Serializers of approval requests, and of the bodies and queries of their endpoints."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from approvals.models import ApprovalRequest, PolicyRevision
from approvals.policies import eligibility, quorum
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.queue.precedents import precedents_for
from approvals.queue.saved_views import ORDERS, STATUSES
from approvals.requests.privacy import mask_preview
from approvals.requests.queries import EarlierCalls, current_round, earlier_calls
from approvals.reviews.batch import MAX_BATCH_ITEMS, SNOOZE, VERDICTS, BatchItemResult
from approvals.states import FAIL, REJECTION_EFFECTS, RequestStatus, ReviewVerdict
from catalog.access.roles import can_see_all, user_display_name
from catalog.calls.privacy import PRIVATE_NOTICE, PrivateCallParts
from catalog.core import clock
from catalog.rest.serializers import (
    MAX_ID_LENGTH,
    BlankAsNullField,
    JsonObjectField,
    MomentField,
    PageQuery,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)

REQUEST_KINDS = ("call", "envelope")


class SnoozeBody(StrictSerializer):
    """The end of the snooze; null shows the request again."""

    until = MomentField(allow_null=True)


class DelegateBody(StrictSerializer):
    """The person who may review on your behalf; null ends the delegation."""

    to = StrictTextField(max_length=150, allow_null=True, help_text="A username.")


class CommentBody(StrictSerializer):
    """A comment."""

    text = StrictTextField(max_length=None, trim_whitespace=False, help_text="At most 4,000 characters.")


class ItemBody(StrictSerializer):
    """One request of a batch, with the digest that was seen."""

    id = StrictTextField(max_length=MAX_ID_LENGTH)
    seen_digest = StrictTextField(max_length=64, required=False, allow_blank=True, default="")


class BatchBody(StrictSerializer):
    """One verdict on several requests; `until` belongs to snooze only."""

    verdict = StrictChoiceField(choices=VERDICTS)
    comment = StrictTextField(required=False, allow_blank=True, default="")
    until = MomentField(required=False)
    items = serializers.ListField(child=ItemBody(), min_length=1, max_length=MAX_BATCH_ITEMS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        snoozes = attrs["verdict"] == SNOOZE
        if snoozes and "until" not in attrs:
            raise serializers.ValidationError({"until": ["This field is required for snooze."]}, code="required")
        if not snoozes and "until" in attrs:
            raise serializers.ValidationError({"until": ["This field is only for snooze."]})
        return attrs


class ItemResultSerializer(serializers.Serializer[Any]):
    """The result of one item: the request's status, or `conflict`, `forbidden`, `invalid`, `not_found`."""

    id = serializers.CharField()
    status = serializers.CharField()
    detail = serializers.CharField(required=False, help_text="Why nothing was recorded; absent if it was.")

    def to_representation(self, instance: BatchItemResult) -> dict[str, Any]:
        """Return the result, without `detail` if there is none."""
        return {name: value for name, value in asdict(instance).items() if name != "detail" or value}


class BatchResultSerializer(serializers.Serializer[Any]):
    """The results of the items, in their order."""

    results = ItemResultSerializer(many=True)


class RemarkSerializer(serializers.Serializer[Any]):
    """A comment on a request; `verdict` is set if it came with a review."""

    by = serializers.CharField()
    text = serializers.CharField()
    at = serializers.DateTimeField()
    verdict = serializers.ChoiceField(choices=ReviewVerdict.values, allow_null=True)
    is_agent = serializers.BooleanField(help_text="Written through an agent's token; unverified.")


class DelegationSerializer(serializers.Serializer[Any]):
    """A delegation: one person may answer on behalf of another."""

    by = serializers.CharField(source="by.username")
    to = serializers.CharField(source="to.username")
    at = serializers.DateTimeField()


class CoordinationSerializer(serializers.Serializer[Any]):
    """Claim, snooze and comments of a request. The context has the `viewer`, whose snooze is shown."""

    claimed_by = serializers.SerializerMethodField()
    claimed_until = serializers.SerializerMethodField()
    snoozed_until = serializers.SerializerMethodField()
    delegated_to = serializers.SerializerMethodField(help_text="The person to whom the viewer delegated the review.")
    delegations = DelegationSerializer(many=True)
    escalated_to = serializers.SerializerMethodField(help_text="The group asked after the request expired.")
    duplicates = serializers.SerializerMethodField(
        help_text="Other waiting requests for the same call; null if not counted."
    )
    thread = serializers.SerializerMethodField()

    def get_claimed_by(self, request: ApprovalRequest) -> str | None:
        """Return the username of the reviewer who has claimed the request."""
        return (
            request.claimed_by.get_username() if request.claimed_by and _is_in_future(request.claimed_until) else None
        )

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_claimed_until(self, request: ApprovalRequest) -> Any:
        """Return the end of the claim."""
        return _future_time_or_none(request.claimed_until)

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_snoozed_until(self, request: ApprovalRequest) -> Any:
        """Return the end of the viewer's snooze."""
        return _future_time_or_none(getattr(request, "snoozed_until", None))

    def get_delegated_to(self, request: ApprovalRequest) -> str | None:
        """Return the person to whom the viewer delegated the review."""
        viewer = self.context["viewer"].pk
        delegates = (each.to.get_username() for each in request.delegations.all() if each.by_id == viewer)
        return next(delegates, None)

    def get_escalated_to(self, request: ApprovalRequest) -> str | None:
        """Return the group, or None."""
        return request.escalated_to or None

    def get_duplicates(self, request: ApprovalRequest) -> int | None:
        """Return the number of other waiting requests for the same call."""
        duplicates: int | None = getattr(request, "duplicates", None)
        return duplicates

    @extend_schema_field(RemarkSerializer(many=True))
    def get_thread(self, request: ApprovalRequest) -> Any:
        """Return all comments, oldest first."""
        return RemarkSerializer(sorted(_thread_entries(request), key=lambda each: each["at"]), many=True).data


def _thread_entries(request: ApprovalRequest) -> Iterator[dict[str, Any]]:
    for review in request.reviews.all():
        if review.comment:
            entry = {"by": review.person.get_username(), "text": review.comment, "at": review.at}
            yield entry | {"verdict": review.verdict, "is_agent": False}
    for comment in request.comments.all():
        entry = {"by": comment.person.get_username(), "text": comment.text, "at": comment.at}
        yield entry | {"verdict": None, "is_agent": comment.is_agent}


def _is_in_future(moment: Any) -> bool:
    return moment is not None and bool(moment > clock.now())


def _future_time_or_none(moment: Any) -> Any:
    return serializers.DateTimeField().to_representation(moment) if _is_in_future(moment) else None


MAX_HUNKS = 10_000


class ApprovalQuery(PageQuery):
    status = StrictChoiceField(choices=STATUSES, required=False, help_text="A status, or a saved view of the queue.")
    order = StrictChoiceField(choices=ORDERS, required=False, help_text="By age or by risk.")
    tool = serializers.CharField(required=False, max_length=MAX_ID_LENGTH)
    plan = serializers.CharField(required=False, max_length=MAX_ID_LENGTH)
    mine = serializers.BooleanField(default=False, help_text="Only the caller's own requests.")


class ReviewBody(StrictSerializer):
    """A review of the request with the digest `seen_digest`."""

    verdict = StrictChoiceField(choices=ReviewVerdict.values)
    seen_digest = StrictTextField(max_length=64)
    comment = StrictTextField(required=False, allow_blank=True, default="")
    hunks = serializers.ListField(
        child=StrictIntegerField(min_value=0),
        required=False,
        max_length=MAX_HUNKS,
        help_text="Indices of the accepted hunks, from 0; an empty list rejects.",
    )
    arguments = JsonObjectField(required=False, help_text="Edited arguments; for the verdict approve.")
    response = serializers.JSONField(
        required=False, allow_null=True, help_text="The result in place of the tool's; for the verdict respond."
    )
    effect = StrictChoiceField(
        choices=REJECTION_EFFECTS, required=False, default=FAIL, help_text="Effect of a rejection on the step or plan."
    )


class RemarkBody(StrictSerializer):
    """An optional comment on an action."""

    comment = StrictTextField(required=False, allow_blank=True, default="")


class PolicyTermsSerializer(serializers.Serializer[Any]):
    """The policy revision that held the call."""

    name = serializers.CharField(source="policy.name")
    rule = serializers.SerializerMethodField()
    sentence = serializers.CharField()
    quorum = serializers.IntegerField()
    groups = serializers.ListField(child=serializers.CharField())

    def get_rule(self, revision: PolicyRevision) -> str:
        """Return the name of the revision."""
        return str(revision)


class VoteSerializer(serializers.Serializer[Any]):
    """One review; an undone one no longer counts."""

    round = serializers.IntegerField(source="round.number")
    person = serializers.CharField(source="person.username")
    verdict = serializers.ChoiceField(choices=ReviewVerdict.values)
    comment = serializers.CharField()
    effect = serializers.CharField(help_text="Effect of a rejection on the step or plan.")
    on_behalf_of = serializers.CharField(source="on_behalf_of.username", default=None, allow_null=True)
    signed = serializers.BooleanField(source="passkey", help_text="True if it was signed with a passkey.")
    at = serializers.DateTimeField()
    undone_at = serializers.DateTimeField(allow_null=True)


class PrecedentSerializer(serializers.Serializer[Any]):
    """An earlier decision about the same tool. A past approval is not permission."""

    id = serializers.CharField(source="request.public_id")
    status = serializers.ChoiceField(source="request.status", choices=RequestStatus.values)
    verdict = serializers.CharField(source="review.verdict", default=None, allow_null=True)
    decided_by = serializers.CharField(source="review.person.username", default=None, allow_null=True)
    comment = serializers.CharField(source="review.comment", default=None, allow_null=True)
    decided_at = serializers.DateTimeField(source="request.decided_at")
    outcome = serializers.CharField(allow_null=True, help_text="How the call ended; null if it did not run.")
    alike = serializers.BooleanField(help_text="True if its arguments had the same names, folder, host or domain.")


class ApprovalSerializer(CoordinationSerializer):
    """A request in a list. The context has the `viewer`, and the parts `private` to them by primary key of the call."""

    id = serializers.CharField(source="public_id")
    status = serializers.ChoiceField(choices=RequestStatus.values)
    digest = serializers.CharField()
    tool = serializers.CharField(source="tool_version.tool.name")
    version = serializers.IntegerField(source="tool_version.number")
    safety_level = serializers.CharField(source="tool_version.safety_level")
    reversibility = serializers.CharField(source="tool_version.reversibility")
    arguments = serializers.SerializerMethodField()
    defaults = serializers.SerializerMethodField(help_text="Paths of the arguments that hold the tool's defaults.")
    omitted = serializers.SerializerMethodField(help_text="Paths of arguments that were null and left out.")
    preview = serializers.SerializerMethodField()
    plan = BlankAsNullField(source="plan_ref")
    step_id = serializers.SerializerMethodField()
    call = serializers.CharField(source="call.public_id")
    kind = serializers.SerializerMethodField(help_text="`envelope` if it asks for a task, otherwise `call`.")
    envelope = serializers.SerializerMethodField(
        help_text="The envelope that it proposes, or that its call fell outside."
    )
    mismatch = serializers.SerializerMethodField(help_text="The promise of the envelope that its call broke.")
    requester = serializers.SerializerMethodField(help_text="Name of the token or person that requested the call.")
    requested_by = serializers.CharField(source="call.requested_by.username", allow_null=True)
    reason = serializers.SerializerMethodField(help_text="The agent's own words; unverified.")
    policy = PolicyTermsSerializer(source="policy_revision")
    round = serializers.IntegerField(source="round_number")
    votes = VoteSerializer(source="reviews", many=True)
    opened_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    effective_at = serializers.DateTimeField(allow_null=True)
    may_decide = serializers.SerializerMethodField()
    why_not = serializers.SerializerMethodField()
    one_more = serializers.SerializerMethodField()
    superseded_by = serializers.CharField(source="superseded_by.public_id", allow_null=True)

    def get_one_more(self, request: ApprovalRequest) -> str | None:
        """Return why one more approval is required than the policy says, or None."""
        is_pending = request.status == RequestStatus.PENDING
        return (quorum.extra_approval_reason(request, self.context["viewer"]) or None) if is_pending else None

    def get_arguments(self, request: ApprovalRequest) -> dict[str, Any]:
        """Return the arguments of the call, redacted."""
        arguments = current_round(request).arguments_json
        hidden = self._hidden(request)
        return hidden.mask_arguments(arguments) if hidden else arguments

    def get_defaults(self, request: ApprovalRequest) -> list[str]:
        """Return the paths of the arguments that hold defaults."""
        return current_round(request).default_paths

    def get_omitted(self, request: ApprovalRequest) -> list[str]:
        """Return the paths of the arguments that were null and left out."""
        return current_round(request).omitted_paths

    def get_preview(self, request: ApprovalRequest) -> dict[str, Any] | None:
        """Return the preview computed by the tool."""
        preview = current_round(request).preview_json
        return mask_preview(preview) if self._hidden(request) else preview

    def get_reason(self, request: ApprovalRequest) -> str:
        """Return the requester's reason, masked like private data, since it may repeat it."""
        reason = request.call.reason
        return PRIVATE_NOTICE if reason and self._hidden(request) else reason

    @extend_schema_field(serializers.ChoiceField(choices=REQUEST_KINDS))
    def get_kind(self, request: ApprovalRequest) -> str:
        return "envelope" if request.call.tool_name == PROPOSE_ENVELOPE else "call"

    def get_envelope(self, request: ApprovalRequest) -> str | None:
        """Return the id of the envelope, or None."""
        call = request.call
        envelope = getattr(call, "proposed_envelope", None)
        if envelope is None and hasattr(call, "envelope_mismatch"):
            envelope = call.envelope_mismatch.envelope
        return envelope.public_id if envelope is not None else None

    def get_mismatch(self, request: ApprovalRequest) -> str | None:
        """Return the promise, or None."""
        return request.call.envelope_mismatch.mismatch if hasattr(request.call, "envelope_mismatch") else None

    def _hidden(self, request: ApprovalRequest) -> PrivateCallParts | None:
        private: Mapping[int, PrivateCallParts] = self.context["private"]
        return private.get(request.call_id)

    def get_step_id(self, request: ApprovalRequest) -> int | None:
        """Return the number of the step, or None."""
        return int(request.call.step_ref) if request.call.step_ref else None

    def get_requester(self, request: ApprovalRequest) -> str | None:
        """Return the name of the token, or else of the person, that requested the call."""
        call = request.call
        if call.token is not None:
            return call.token.name
        return user_display_name(call.requested_by) if call.requested_by else None

    def get_may_decide(self, request: ApprovalRequest) -> bool:
        """Return True if the viewer may decide the request now."""
        return request.status == RequestStatus.PENDING and self.get_why_not(request) is None

    @cached_property
    def _reasons(self) -> dict[int, str | None]:
        return {}

    def get_why_not(self, request: ApprovalRequest) -> str | None:
        """Return why the viewer may not decide the request, or None."""
        reasons = self._reasons
        if request.pk not in reasons:
            reasons[request.pk] = eligibility.may_decide(request, self.context["viewer"])
        return reasons[request.pk]


class RoundSerializer(serializers.Serializer[Any]):
    """The arguments of one round: the first round is the original request, each later one an edit."""

    number = serializers.IntegerField()
    arguments = serializers.DictField(help_text="Redacted like the request's arguments.")
    digest = serializers.CharField()
    editor = serializers.CharField(allow_null=True, help_text="The editor; null for the original request.")
    at = serializers.DateTimeField()


class EarlierCallsSerializer(serializers.Serializer[EarlierCalls]):
    """Calls because of which a policy that looks back holds this one."""

    count = serializers.IntegerField(allow_null=True, help_text="Number of like calls with this one, if it counts.")
    calls = serializers.ListField(child=serializers.CharField())
    others = serializers.IntegerField(help_text="Number of calls that are not listed.")

    def to_representation(self, earlier: EarlierCalls) -> dict[str, Any]:
        """Return the calls by their ids."""
        return {"count": earlier.count, "calls": [call.public_id for call in earlier.calls], "others": earlier.others}


class ApprovalDetailSerializer(ApprovalSerializer):
    """A request with its rounds and precedent."""

    earlier_calls = serializers.SerializerMethodField(
        help_text="Calls that came before, newest first, up to 20; null unless the policy looks back."
    )
    rounds = serializers.SerializerMethodField(help_text="Oldest first; more than one after an edit.")
    precedent = serializers.SerializerMethodField()

    @extend_schema_field(EarlierCallsSerializer(allow_null=True))
    def get_earlier_calls(self, request: ApprovalRequest) -> Any:
        """Return the calls that the viewer may read, and the number of others."""
        found = earlier_calls(request, self.context["viewer"])
        return EarlierCallsSerializer(found).data if found is not None else None

    @extend_schema_field(RoundSerializer(many=True))
    def get_rounds(self, request: ApprovalRequest) -> Any:
        """Return the rounds, oldest first."""
        rounds = sorted(request.rounds.all(), key=lambda each: each.number)
        private_parts = self._hidden(request)
        documents = [
            {
                "number": each.number,
                "arguments": private_parts.mask_arguments(each.arguments_json)
                if private_parts
                else each.arguments_json,
                "digest": each.digest,
                "editor": each.editor.get_username() if each.editor else None,
                "at": each.created_at,
            }
            for each in rounds
        ]
        return RoundSerializer(documents, many=True).data

    @extend_schema_field(PrecedentSerializer(many=True))
    def get_precedent(self, request: ApprovalRequest) -> Any:
        """Return the latest decisions about the same tool; empty for users who may not see all requests."""
        earlier = precedents_for(request) if can_see_all(self.context["viewer"]) else []
        return PrecedentSerializer(earlier, many=True).data
