"""REST endpoints of policies: read, change, describe in words, simulate, back-test."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.envelopes.reading import covering_views
from approvals.messaging.addresses import MAX_ADDRESS_LENGTH
from approvals.models import Policy, PolicyRevision
from approvals.policies import services
from approvals.policies.backtest import MAX_DAYS, back_test, draft_of, rulebooks_for
from approvals.policies.lint import policy_warnings
from approvals.policies.simulator import effect_of, simulate
from approvals.policies.term_checks import MAX_NOTIFY, term_columns
from approvals.policies.trials import trial_report
from approvals.policy_language.conditions import MAX_CONDITIONS, MAX_VALUE
from approvals.policy_language.history import (
    MAX_BY,
    MAX_RECENT_COUNT,
    MAX_RECENT_SECONDS,
    MAX_SEEN_NAME,
    MAX_SEEN_SECONDS,
    SEEN_KINDS,
)
from approvals.policy_language.sentences import extra_terms_in_words
from approvals.policy_language.stages import MAX_STAGES
from approvals.policy_language.terms import MATCH, MAX_STOP_COUNT, MAX_STOP_SECONDS, OPTIONS, Kind, Term
from catalog.access.roles import NotAllowed, agent_token_of, can_see_all
from catalog.errors import ParameterError
from catalog.inventory.selectors import LEVELS
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.problems import refusal_responses
from catalog.rest.serializers import (
    MAX_ID_LENGTH,
    JsonObjectField,
    MomentField,
    PageQuery,
    StrictBooleanField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from catalog.rest.views import Endpoint
from catalog.schemas import ArgumentProblem, raise_for_problems

MAX_ORDER = 1_000_000
EFFECTS = PolicyRevision.Effect.values
CHOICES = {
    "safety_level": [*LEVELS, ""],
    "effect": EFFECTS,
    "mode": PolicyRevision.Mode.values,
    "on_expiry": PolicyRevision.OnExpiry.values,
    "envelope": PolicyRevision.Envelope.values,
}


class StageBody(StrictSerializer):
    """The number of members of a group who must approve."""

    group = StrictTextField(max_length=150)
    count = StrictIntegerField()


class StopAfterBody(StrictSerializer):
    """The most refused calls within a time; more of them set a stop."""

    count = StrictIntegerField(help_text=f"1 to {MAX_STOP_COUNT:,}.")
    seconds = StrictIntegerField(help_text=f"1 to {MAX_STOP_SECONDS:,}.")


class RecentBody(StrictSerializer):
    """The call from which on a policy matches, within a window."""

    count = StrictIntegerField(min_value=1, max_value=MAX_RECENT_COUNT)
    seconds = StrictIntegerField(min_value=1, max_value=MAX_RECENT_SECONDS)
    by = StrictTextField(max_length=MAX_BY, help_text="requester, token, tool, plan, or argument:PATH.")


class SeenBody(StrictSerializer):
    """A kind of earlier calls, as one of category, tool and source."""

    vars().update({kind: StrictTextField(required=False, max_length=MAX_SEEN_NAME) for kind in SEEN_KINDS})
    within = StrictIntegerField(min_value=1, max_value=MAX_SEEN_SECONDS, help_text="Seconds.")


BODIES = {Kind.STOP_AFTER: StopAfterBody, Kind.RECENT: RecentBody, Kind.SEEN: SeenBody}


def _body_field(term: Term) -> Any:
    options: dict[str, Any] = {"required": False} | ({"help_text": term.note} if term.note else {})
    if term.kind is Kind.TEXT:
        return StrictTextField(allow_blank=True, max_length=term.longest, **options)
    if term.kind is Kind.CHOICE:
        blank: dict[str, Any] = {"allow_blank": True} if term in MATCH else {}
        return StrictChoiceField(choices=CHOICES[term.name], **blank, **options)
    if term.kind is Kind.FLAG:
        return StrictBooleanField(allow_null=term.is_nullable, **options)
    if term.kind is Kind.SECONDS:
        return StrictIntegerField(allow_null=term.is_nullable, min_value=term.least, **options)
    if term.kind in BODIES:
        return BODIES[term.kind](allow_null=True, **options)
    children = {
        Kind.CONDITIONS: (JsonObjectField(), MAX_CONDITIONS),
        Kind.STAGES: (StageBody(), MAX_STAGES),
        Kind.ADDRESSES: (StrictTextField(max_length=MAX_ADDRESS_LENGTH), MAX_NOTIFY),
    }
    child, most = children[term.kind]
    return serializers.ListField(child=child, max_length=most, **options)


def _answer_field(term: Term, source: str | None) -> Any:
    """Return the serializer field that shows a term; `source` is its attribute, None if named like the term."""
    null: dict[str, Any] = {"allow_null": True} if term.is_nullable else {}
    fields: dict[Kind, Callable[[], Any]] = {
        Kind.TEXT: lambda: serializers.CharField(source=source),
        Kind.CHOICE: lambda: serializers.ChoiceField(choices=CHOICES[term.name], source=source),
        Kind.FLAG: lambda: serializers.BooleanField(source=source, **null),
        Kind.SECONDS: lambda: serializers.IntegerField(source=source, **null),
        Kind.CONDITIONS: lambda: serializers.ListField(child=serializers.DictField(), source=term.column),
        Kind.STAGES: lambda: StageBody(many=True, source=source),
        Kind.ADDRESSES: serializers.SerializerMethodField,
        **{kind: partial(body, source=source, **null) for kind, body in BODIES.items()},
    }
    return fields[Kind.TEXT if term in MATCH and term.kind is Kind.CHOICE else term.kind]()


class MatchBody(StrictSerializer):
    """Conditions on calls; an empty or omitted condition matches every call."""

    vars().update({term.name: _body_field(term) for term in MATCH})


class PolicyChangeBody(StrictSerializer):
    """The fields to change; omitted fields keep their values. New terms make a new revision."""

    name = StrictTextField(required=False, max_length=128)
    order = StrictIntegerField(required=False, min_value=0, max_value=MAX_ORDER)
    enabled = StrictBooleanField(required=False)
    match = MatchBody(required=False)
    vars().update({term.name: _body_field(term) for term in OPTIONS})
    revision = StrictIntegerField(required=False, help_text="The revision that was read; 409 if there is a newer one.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not set(attrs) - {"revision"}:
            raise serializers.ValidationError("Name at least one field to change.")
        return attrs


class PolicyBody(PolicyChangeBody):
    """A policy; omitted fields are empty, off, or the installation's default."""

    name = StrictTextField(max_length=128)
    effect = StrictChoiceField(choices=EFFECTS)
    revision = None  # type: ignore[assignment] # DRF: no such field here


class PolicyQuery(PageQuery):
    ended = serializers.BooleanField(default=False, help_text="List ended policies instead.")


class SimulateBody(StrictSerializer):
    """A hypothetical call."""

    tool = StrictTextField(max_length=MAX_ID_LENGTH)
    arguments = JsonObjectField()
    requester = StrictTextField(required=False, max_length=150, default="", help_text="A username.")
    at = MomentField(required=False, default=None, help_text="Time of the call; now by default.")
    cwd = StrictTextField(
        required=False, max_length=MAX_VALUE, default="", help_text="Working directory of a client that runs the tool."
    )


class BackTestBody(StrictSerializer):
    """The id of a policy, or a policy that is not stored, and the calls to replay."""

    policy = serializers.JSONField()
    days = StrictIntegerField(min_value=1, max_value=MAX_DAYS)
    before = StrictTextField(
        required=False, max_length=MAX_ID_LENGTH, default="", help_text="Continue with calls older than this one."
    )


class RevisionSerializer(serializers.Serializer[Any]):
    """A revision of a policy."""

    number = serializers.IntegerField()
    sentence = serializers.CharField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)


class MatchSerializer(serializers.Serializer[PolicyRevision]):
    """Conditions on calls; an empty condition matches every call."""

    vars().update({term.name: _answer_field(term, None) for term in MATCH})


class TermsSerializer(serializers.Serializer[Any]):
    """The terms of a policy in force, with masked addresses."""

    match = MatchSerializer(source="revision")
    vars().update({term.name: _answer_field(term, f"revision.{term.name}") for term in OPTIONS})

    def get_notify(self, policy: Policy) -> list[str]:
        """Return the masked addresses."""
        return [each["shown"] for each in policy.revision.notify] if policy.revision else []


class PolicySerializer(TermsSerializer):
    """A policy with the terms in force."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    order = serializers.IntegerField()
    enabled = serializers.BooleanField()
    revision = serializers.IntegerField(source="revision.number")
    sentence = serializers.CharField(source="revision.sentence")
    created_at = serializers.DateTimeField(source="revision.created_at", help_text="Creation time of this revision.")
    ended_at = serializers.DateTimeField(allow_null=True)


class PolicyDetailSerializer(PolicySerializer):
    """A policy with its revisions, newest first. The context has them as `revisions`."""

    revisions = serializers.SerializerMethodField()

    @extend_schema_field(RevisionSerializer(many=True))
    def get_revisions(self, policy: Policy) -> Any:
        """Return the revisions."""
        return RevisionSerializer(self.context["revisions"], many=True).data


class PolicyWarningSerializer(serializers.Serializer[Any]):
    """A valid term that may not be intended."""

    field = serializers.CharField()
    message = serializers.CharField()


class PolicySentenceSerializer(serializers.Serializer[Any]):
    """A policy in words."""

    sentence = serializers.CharField(help_text="The calls that match and the effect on them.")
    also = serializers.ListField(child=serializers.CharField(), help_text="Further requirements on reviewers.")
    warnings = PolicyWarningSerializer(many=True)


class WhySerializer(serializers.Serializer[Any]):
    """An earlier policy, with the reasons why it did not match."""

    policy = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())


class DerivedFactsSerializer(serializers.Serializer[Any]):
    """Facts of a call that its client runs itself, as policies see it."""

    programs = serializers.ListField(child=serializers.CharField())
    effects = serializers.ListField(child=serializers.CharField())
    paths = serializers.ListField(child=serializers.CharField())
    hosts = serializers.ListField(child=serializers.CharField())
    understood = serializers.BooleanField()


class TrialVerdictSerializer(serializers.Serializer[Any]):
    """The effect that a policy on trial would have had on the call."""

    policy = serializers.CharField()
    effect = serializers.ChoiceField(choices=EFFECTS)
    sentence = serializers.CharField()


class SimulationSerializer(serializers.Serializer[Any]):
    """The effect on the call; `policy` and `rule` are null if no policy matches."""

    effect = serializers.ChoiceField(choices=EFFECTS)
    policy = serializers.CharField(allow_null=True, help_text="The policy's name.")
    rule = serializers.CharField(allow_null=True, help_text="The policy's revision.")
    sentence = serializers.CharField()
    stages = StageBody(many=True)
    passed = WhySerializer(many=True)
    derived = DerivedFactsSerializer(allow_null=True, help_text="Facts of a call that a client runs; null for others.")
    trials = TrialVerdictSerializer(many=True, help_text="Policies on trial that would decide the call.")
    envelopes = serializers.ListField(
        child=serializers.CharField(),
        help_text="Open envelopes of the requester that would let the call start, made as each one is for.",
    )


class ChangedSerializer(serializers.Serializer[Any]):
    """A past call with a different effect; `review` is the verdict of its reviewers, if any."""

    call = serializers.CharField()
    before = serializers.ChoiceField(choices=EFFECTS)
    after = serializers.ChoiceField(choices=EFFECTS)
    review = serializers.CharField(required=False)


class BackTestSerializer(serializers.Serializer[Any]):
    """Effects of all policies with the tested one on past calls: up to 200 in `changed`; continue with `next`."""

    held = serializers.IntegerField()
    allowed = serializers.IntegerField()
    denied = serializers.IntegerField()
    rejected = serializers.IntegerField(help_text="Allowed calls that reviewers rejected.")
    other_people = serializers.IntegerField(
        help_text="Held calls that now wait for different or a different number of reviewers."
    )
    calls = serializers.IntegerField(help_text="Number of replayed calls, at most 10,000.")
    matched = serializers.IntegerField(help_text="Replayed calls to which the tested policy applies.")
    changed = ChangedSerializer(many=True)
    next = serializers.CharField(allow_null=True)


class TrialCallSerializer(serializers.Serializer[Any]):
    """A call that the policy would have decided; `review` is the verdict of its reviewers, if any."""

    call = serializers.CharField(allow_null=True, help_text="Null for a call that was refused, and so not stored.")
    would = serializers.ChoiceField(choices=EFFECTS)
    was = serializers.ChoiceField(
        choices=EFFECTS,
        help_text="Effect of the policies in force. A call that they hold may have run through a grant or an envelope.",
    )
    review = serializers.CharField(required=False)


class TrialSerializer(serializers.Serializer[Any]):
    """The trial of a policy: effects it would have had, and the last hundred calls, the newest first."""

    since = serializers.DateTimeField(allow_null=True, help_text="Null for a policy that is not on trial.")
    held = serializers.IntegerField()
    allowed = serializers.IntegerField()
    denied = serializers.IntegerField()
    differs = serializers.IntegerField(help_text="Calls on which the policies in force had another effect.")
    calls = TrialCallSerializer(many=True)


READS = ["approvals:read", "policies:write"]
WRITES = ["policies:write"]


class PolicyEndpoint(Endpoint):
    def policy(self, public_id: str) -> Policy:
        """Return a policy, ended or not. Raises Http404."""
        try:
            return services.policy_for(self.user, public_id)
        except Policy.DoesNotExist:
            raise Http404 from None

    def detail_response(self, public_id: str, status: int = 200) -> Response:
        policy = self.policy(public_id)
        context = {"revisions": services.policy_history(policy)}
        return Response(PolicyDetailSerializer(policy, context=context).data, status)

    def require_role(self) -> None:
        """Raise NotAllowed for agents' tokens and users without a role."""
        if agent_token_of(self.user) is not None or not can_see_all(self.user):
            raise NotAllowed("Only users with a role may read policies; agents' tokens may not.")


class PolicyList(PolicyEndpoint):
    """The policies."""

    required_scopes: ClassVar = {"GET": READS, "POST": WRITES}

    @extend_schema("policies_list", parameters=[PolicyQuery], responses=page_schema(PolicySerializer))
    def get(self, request: Request) -> Response:
        """List the policies in order. The first policy that matches a call decides."""
        self.require_role()
        query, at = self.page_query(PolicyQuery)
        page = paginate(services.policies_for(self.user, ended=query["ended"]), order="order", at=at)
        return paginated_response(request, page, lambda row: PolicySerializer(row).data)

    @extend_schema(
        "policies_create", parameters=[IDEMPOTENCY_KEY], request=PolicyBody, responses={201: PolicyDetailSerializer}
    )
    def post(self, request: Request) -> Response:
        """Create a policy. Administrators only."""
        return respond_once(
            request,
            lambda: self.detail_response(services.create_policy(self.body(PolicyBody), by=self.user).public_id, 201),
            lambda ref: self.detail_response(ref, 201),
        )


class PolicyDetail(PolicyEndpoint):
    """One policy."""

    required_scopes: ClassVar = {"GET": READS, "PATCH": WRITES, "DELETE": WRITES}

    @extend_schema("policies_read", responses=PolicyDetailSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one policy with its revisions."""
        self.require_role()
        return self.detail_response(public_id)

    @extend_schema("policies_change", request=PolicyChangeBody, responses=PolicyDetailSerializer)
    def patch(self, request: Request, public_id: str) -> Response:
        """Change a policy. New terms make a new revision; open requests keep theirs. Administrators only."""
        services.change_policy(self.policy(public_id), self.body(PolicyChangeBody), by=self.user)
        return self.detail_response(public_id)

    @extend_schema("policies_end", responses={200: PolicyDetailSerializer})
    def delete(self, request: Request, public_id: str) -> Response:
        """End a policy. It is kept for the requests it held. Administrators only."""
        services.end_policy(self.policy(public_id), by=self.user)
        return self.detail_response(public_id)


class PolicyTrial(PolicyEndpoint):
    """The trial of a policy."""

    required_scopes: ClassVar = {"GET": READS}

    @extend_schema("policies_trial", responses=TrialSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show what a policy on trial would have done since its last change. It changes no call."""
        self.require_role()
        report = trial_report(self.policy(public_id))
        counted = ("held", "allowed", "denied", "differs")
        document = {
            "since": report.since if report else None,
            **{name: getattr(report, name, 0) for name in counted},
            "calls": [
                {
                    "call": each.call.public_id if each.call else None,
                    "would": each.result.would,
                    "was": each.result.was,
                    **({"review": each.review} if each.review else {}),
                }
                for each in (report.calls if report else ())
            ],
        }
        return Response(TrialSerializer(document).data)


class PolicySimulate(PolicyEndpoint):
    """Simulation of a call."""

    required_scopes: ClassVar = {"POST": READS}

    @extend_schema("policies_simulate", request=SimulateBody, responses=SimulationSerializer)
    def post(self, request: Request) -> Response:
        """Show the policy that would decide a call, and why earlier ones do not match. Nothing is stored."""
        self.require_role()
        body = self.body(SimulateBody)
        simulation = simulate(body["tool"], body["arguments"], body["requester"], body["at"], body["cwd"])
        decided = simulation.decided
        document = {
            "effect": simulation.effect,
            "policy": decided.policy.name if decided else None,
            "rule": str(decided.revision) if decided else None,
            "sentence": simulation.sentence,
            "stages": [{"group": stage.group, "count": stage.count} for stage in simulation.stages],
            "passed": [
                {"policy": each.policy.name, "reasons": [reason.text for reason in each.reasons]}
                for each in simulation.passed
            ],
            "derived": DerivedFactsSerializer(simulation.derived).data if simulation.derived else None,
            "trials": [
                {"policy": each.rule.policy, "effect": effect_of(each.would), "sentence": each.rule.sentence}
                for each in simulation.trials
            ],
            "envelopes": [
                view.envelope.public_id
                for view in (covering_views(self.user, simulation, body["tool"]) if body["at"] is None else ())
            ],
        }
        return Response(document)


class PolicyInWords(PolicyEndpoint):
    """A policy in plain words."""

    required_scopes: ClassVar = {"POST": WRITES}

    @extend_schema("policies_sentence", request=PolicyBody, responses=PolicySentenceSerializer)
    def post(self, request: Request) -> Response:
        """Describe a policy in words, with warnings about its terms. Nothing is stored. Administrators only."""
        services.require_policy_changes(self.user)
        body = self.body(PolicyBody)
        columns = term_columns(body | {"notify": []}) | {"notify": body.get("notify", [])}
        draft = draft_of(columns, name=body["name"], order=body.get("order", services.BEFORE_ALL_OTHERS))
        warnings = [{"field": field, "message": message} for field, message in policy_warnings(columns).items()]
        return Response({"sentence": draft.sentence, "also": extra_terms_in_words(draft), "warnings": warnings})


class PolicyBackTest(PolicyEndpoint):
    """Back-test of a policy."""

    required_scopes: ClassVar = {"POST": WRITES}

    @extend_schema(
        "policies_back_test", request=BackTestBody, responses={200: BackTestSerializer, **refusal_responses(404)}
    )
    def post(self, request: Request) -> Response:
        """Replay recent calls with a policy: count the calls it would hold, allow and deny. Administrators only."""
        services.require_policy_changes(self.user)
        body = self.body(BackTestBody)
        books = rulebooks_for(self._revision(body["policy"]))
        tested = back_test(books, days=body["days"], before=body["before"])
        document = {
            "held": tested.counts["hold"],
            "allowed": tested.counts["allow"],
            "denied": tested.counts["deny"],
            "rejected": tested.rejected,
            "other_people": tested.other_people,
            "calls": tested.calls,
            "matched": tested.matched,
            "changed": [
                {"call": each.call, "before": each.before, "after": each.after}
                | ({"review": each.review} if each.review else {})
                for each in tested.changed
            ],
            "next": tested.next,
        }
        return Response(document)

    def _revision(self, given: Any) -> PolicyRevision:
        """Return the revision to test: the current revision of the policy with this id, or a draft."""
        if isinstance(given, str):
            revision = self.policy(given).revision
            if revision is None:
                raise Http404
            return revision
        serializer = PolicyBody(data=given)
        if not serializer.is_valid():
            raise ValidationError({"policy": serializer.errors})
        draft = serializer.validated_data
        return draft_of(_draft_columns(draft), name=draft["name"], order=draft.get("order", services.BEFORE_ALL_OTHERS))


def _draft_columns(draft: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a draft policy. Raises ParameterError with paths under `policy`."""
    try:
        return term_columns(draft | {"notify": []})  # a back-test notifies nobody
    except ParameterError as error:
        raise_for_problems(
            [
                ArgumentProblem(f"policy.{each['path']}", each["code"], each["message"])
                for each in error.details["errors"]
            ]
        )
        raise
