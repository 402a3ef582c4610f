"""Policies in JSON: what is taken, strictly, and what is shown. What terms mean is checked by `policy_terms`."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from approvals.messaging.addresses import MOST_LETTERS
from approvals.models import Policy, PolicyRevision
from approvals.policies.backtest import MAX_DAYS
from approvals.policies.terms import MAX_MESSAGE, MAX_NOTIFY, MIN_SECONDS, shown_address
from approvals.policy_language.conditions import MAX_ROWS
from approvals.policy_language.stages import MAX_STAGES
from catalog.inventory.selectors import LEVELS
from catalog.rest.serializers import (
    MAX_ID,
    Choice,
    Flag,
    JsonObject,
    MomentField,
    PageQuery,
    StrictSerializer,
    Text,
    Whole,
)

MAX_ORDER = 1_000_000
EFFECTS = PolicyRevision.Effect.values


class MatchBody(StrictSerializer):
    """Which calls a policy is about; what is empty or left out fits anything."""

    tool = Text(required=False, allow_blank=True, max_length=128, help_text="A name, with * and ?.")
    category = Text(required=False, allow_blank=True, max_length=64)
    safety_level = Choice(choices=[*LEVELS, ""], required=False, allow_blank=True)
    source = Text(required=False, allow_blank=True, max_length=128)  # type: ignore[assignment] # a field of that name
    requester = Text(required=False, allow_blank=True, max_length=150, help_text="A username, or group:NAME.")
    plan = Text(required=False, allow_blank=True, max_length=40)
    arguments = serializers.ListField(child=JsonObject(), required=False, max_length=MAX_ROWS)
    hours = Text(required=False, allow_blank=True, max_length=64, help_text="Mon-Fri 09:00-17:00, perhaps with a zone.")


class StageBody(StrictSerializer):
    """How many people of a group must agree."""

    group = Text(max_length=150)
    count = Whole()


class PolicyChangeBody(StrictSerializer):
    """What is to be different; what is left out stays. Other terms make a new revision."""

    name = Text(required=False, max_length=128)
    order = Whole(required=False, min_value=0, max_value=MAX_ORDER)
    enabled = Flag(required=False)
    match = MatchBody(required=False)
    effect = Choice(choices=EFFECTS, required=False)
    message = Text(required=False, allow_blank=True, max_length=MAX_MESSAGE)
    stages = serializers.ListField(child=StageBody(), required=False, max_length=MAX_STAGES)
    expires_seconds = Whole(required=False, allow_null=True, min_value=MIN_SECONDS)
    on_expiry = Choice(choices=PolicyRevision.OnExpiry.values, required=False)
    escalate_to = Text(required=False, allow_blank=True, max_length=150)
    remind = Flag(required=False)
    batchable = Flag(required=False)
    allow_self_review = Flag(required=False)
    editor_may_approve = Flag(required=False)
    reason_required = Flag(required=False, allow_null=True)
    min_review_seconds = Whole(required=False, min_value=0)
    typed_target = Flag(required=False)
    fresh_sign_in_seconds = Whole(required=False, min_value=0)
    min_role_age_seconds = Whole(required=False, min_value=0)
    notify = serializers.ListField(child=Text(max_length=MOST_LETTERS), required=False, max_length=MAX_NOTIFY)
    revision = Whole(required=False, help_text="The revision that was read: 409 when there is a newer one.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a change of nothing."""
        if not set(attrs) - {"revision"}:
            raise serializers.ValidationError("Say what is to be different: nothing was named.")
        return attrs


class PolicyBody(PolicyChangeBody):
    """A policy; what is left out is empty, off, or the installation's."""

    name = Text(max_length=128)
    effect = Choice(choices=EFFECTS)
    revision = None  # type: ignore[assignment] # DRF: no such field here


class PolicyQuery(PageQuery):
    """How the list is narrowed."""

    ended = serializers.BooleanField(default=False, help_text="Those that were ended, instead.")


class SimulateBody(StrictSerializer):
    """A call that nobody makes."""

    tool = Text(max_length=MAX_ID)
    arguments = JsonObject()
    requester = Text(required=False, max_length=150, default="", help_text="A username.")
    at = MomentField(required=False, default=None, help_text="When it is made; left out: now.")


class BackTestBody(StrictSerializer):
    """A policy to replay past calls with: the id of one, or one as it is sent to be made."""

    policy = serializers.JSONField()
    days = Whole(min_value=1, max_value=MAX_DAYS)
    before = Text(required=False, max_length=MAX_ID, default="", help_text="Go on with calls older than this one.")


class RevisionSerializer(serializers.Serializer[Any]):
    """The terms of a policy at one time."""

    number = serializers.IntegerField()
    sentence = serializers.CharField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)


class MatchSerializer(serializers.Serializer[PolicyRevision]):
    """The calls that a policy is about; what is empty fits anything."""

    tool = serializers.CharField()
    category = serializers.CharField()
    safety_level = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment] # a field of that name
    requester = serializers.CharField()
    plan = serializers.CharField()
    arguments = serializers.ListField(child=serializers.DictField(), source="conditions")
    hours = serializers.CharField()


class TermsSerializer(serializers.Serializer[Any]):
    """The terms in force of a policy, its fields as they are sent; of addresses what may be shown."""

    match = MatchSerializer(source="revision")
    effect = serializers.ChoiceField(choices=EFFECTS, source="revision.effect")
    message = serializers.CharField(source="revision.message")
    stages = StageBody(many=True, source="revision.stages")
    expires_seconds = serializers.IntegerField(source="revision.expires_seconds", allow_null=True)
    on_expiry = serializers.ChoiceField(choices=PolicyRevision.OnExpiry.values, source="revision.on_expiry")
    escalate_to = serializers.CharField(source="revision.escalate_to")
    remind = serializers.BooleanField(source="revision.remind")
    batchable = serializers.BooleanField(source="revision.batchable")
    allow_self_review = serializers.BooleanField(source="revision.allow_self_review")
    editor_may_approve = serializers.BooleanField(source="revision.editor_may_approve")
    reason_required = serializers.BooleanField(source="revision.reason_required", allow_null=True)
    min_review_seconds = serializers.IntegerField(source="revision.min_review_seconds")
    typed_target = serializers.BooleanField(source="revision.typed_target")
    fresh_sign_in_seconds = serializers.IntegerField(source="revision.fresh_sign_in_seconds")
    min_role_age_seconds = serializers.IntegerField(source="revision.min_role_age_seconds")
    notify = serializers.SerializerMethodField()

    def get_notify(self, policy: Policy) -> list[str]:
        """Return what may be shown of the addresses."""
        return [shown_address(each) for each in policy.revision.notify] if policy.revision else []


class PolicySerializer(TermsSerializer):
    """A policy with the terms in force."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    order = serializers.IntegerField()
    enabled = serializers.BooleanField()
    revision = serializers.IntegerField(source="revision.number")
    sentence = serializers.CharField(source="revision.sentence")
    created_at = serializers.DateTimeField(source="revision.created_at", help_text="Of this revision.")
    ended_at = serializers.DateTimeField(allow_null=True)


class PolicyDetailSerializer(PolicySerializer):
    """A policy with all its revisions, newest first; the context has them as `revisions`."""

    revisions = serializers.SerializerMethodField()

    @extend_schema_field(RevisionSerializer(many=True))
    def get_revisions(self, policy: Policy) -> Any:
        """Return the history."""
        return RevisionSerializer(self.context["revisions"], many=True).data


class WhySerializer(serializers.Serializer[Any]):
    """A policy that was asked first, and why it said nothing."""

    policy = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())


class SimulationSerializer(serializers.Serializer[Any]):
    """What would become of the call; `policy` and `rule` are null where no policy is about it."""

    effect = serializers.ChoiceField(choices=EFFECTS)
    policy = serializers.CharField(allow_null=True, help_text="The policy's name.")
    rule = serializers.CharField(allow_null=True, help_text="The policy's revision.")
    sentence = serializers.CharField()
    stages = StageBody(many=True)
    passed = WhySerializer(many=True)


class ChangedSerializer(serializers.Serializer[Any]):
    """A past call that would have fared otherwise; `review` is what people said of it, if they were asked."""

    call = serializers.CharField()
    before = serializers.ChoiceField(choices=EFFECTS)
    after = serializers.ChoiceField(choices=EFFECTS)
    review = serializers.CharField(required=False)


class BackTestSerializer(serializers.Serializer[Any]):
    """What the policy would have done to past calls; `changed` are at most 200, `next` says where to go on."""

    held = serializers.IntegerField()
    allowed = serializers.IntegerField()
    denied = serializers.IntegerField()
    rejected = serializers.IntegerField(help_text="Of the allowed: what people rejected.")
    other_people = serializers.IntegerField(help_text="Of the held: what waits now for other, fewer or more people.")
    calls = serializers.IntegerField(help_text="How many were looked at: 10,000 at most.")
    changed = ChangedSerializer(many=True)
    next = serializers.CharField(allow_null=True)
