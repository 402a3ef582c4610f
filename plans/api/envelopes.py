"""REST endpoints of envelopes: propose, list, read, end. A proposal is a call of `propose_envelope`."""

from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.envelopes import reading, services
from approvals.models import Envelope, EnvelopeItem
from approvals.policy_language.envelopes import MAX_COUNT, MAX_ITEMS, MAX_PURPOSE, PROPOSE_ENVELOPE
from catalog.calls.privacy import PRIVATE_NOTICE
from catalog.context import MAX_SESSION
from catalog.errors import Conflict
from catalog.models import Call
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.problems import refusal_responses
from catalog.rest.serializers import (
    MAX_ID_LENGTH,
    JsonObjectField,
    PageQuery,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    StrictTextField,
)
from plans.actions.call import CallOrder, create_call
from plans.api.plans import SESSION_NAME, PlanEndpoint
from plans.store import selectors


class EnvelopeQuery(PageQuery):
    status = StrictChoiceField(choices=Envelope.Status.values, required=False)
    tool = serializers.CharField(required=False, max_length=MAX_ID_LENGTH, help_text="With calls of this tool; opened.")


class EnvelopeSumBody(StrictSerializer):
    """A number of the calls, and the most that it may add up to."""

    path = StrictTextField(max_length=200, help_text="Dotted path of a number in the arguments.")
    at_most = serializers.JSONField(help_text="A number above 0.")


class EnvelopeItemBody(StrictSerializer):
    """Calls that the envelope would let start."""

    tool = StrictTextField(max_length=MAX_ID_LENGTH)
    arguments = serializers.ListField(
        child=JsonObjectField(), help_text="Rows of path, operator and value; at least one row per argument."
    )
    count = StrictIntegerField(min_value=1, max_value=MAX_COUNT)
    sum = EnvelopeSumBody(required=False)


class EnvelopeScopeBody(StrictSerializer):
    """One of these."""

    token = StrictIntegerField(required=False, help_text="The id of a token of the caller.")
    plan = StrictTextField(required=False, max_length=MAX_ID_LENGTH)
    session = StrictTextField(required=False, max_length=MAX_SESSION)


class EnvelopeBody(StrictSerializer):
    """A proposed envelope. An agent's token proposes for itself and leaves `for` out."""

    purpose = StrictTextField(max_length=MAX_PURPOSE)
    items = serializers.ListField(child=EnvelopeItemBody(), min_length=1, max_length=MAX_ITEMS)
    expires_at = StrictTextField(max_length=40, help_text="A time with its zone, at most 24 hours from now.")
    vars().update({"for": EnvelopeScopeBody(required=False)})


class EnvelopeEndBody(StrictSerializer):
    """The reason for which an envelope ends."""

    reason = StrictTextField(max_length=4000)


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]})
class ExactNumberField(serializers.JSONField):
    """A number; as a text of its digits if programs that read JSON would round it."""


class EnvelopeItemSerializer(serializers.Serializer[Any]):
    """An item, and how much of it is used."""

    tool = serializers.CharField()
    arguments = serializers.ListField(child=serializers.DictField(), help_text="Private values are masked.")
    count = serializers.IntegerField()
    sum = serializers.DictField(required=False, help_text="`path` and `at_most`; absent without a sum.")
    used = serializers.IntegerField()
    sum_used = ExactNumberField(required=False, help_text="Absent without a sum; null if it is private to others.")


class EnvelopeSerializer(serializers.Serializer[Any]):
    """An envelope: a task approved once."""

    id = serializers.CharField(source="public_id")
    status = serializers.ChoiceField(choices=Envelope.Status.values)
    approval = serializers.CharField(source="call.approval.public_id")
    purpose = serializers.SerializerMethodField(help_text="The proposer's own words; unverified.")
    vars().update({"for": serializers.SerializerMethodField(method_name="get_scope")})
    items = serializers.SerializerMethodField()
    calls = serializers.IntegerField(help_text="Calls that have started through it.")
    proposed_by = serializers.CharField(source="requester.username")
    proposed_at = serializers.DateTimeField()
    opened_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    ended_by = serializers.CharField(source="ended_by.username", default=None, allow_null=True)
    ended_because = serializers.SerializerMethodField()

    def _hidden(self, envelope: Envelope) -> reading.HiddenParts:
        hidden: reading.HiddenParts = self.context["hidden"].get(envelope.pk, reading.NOTHING_HIDDEN)
        return hidden

    def get_purpose(self, envelope: Envelope) -> str:
        """Return the purpose, unless the proposal is private to others."""
        return PRIVATE_NOTICE if self._hidden(envelope).proposal else envelope.purpose

    @extend_schema_field(serializers.DictField())
    def get_scope(self, envelope: Envelope) -> dict[str, Any]:
        """Return whose calls it covers."""
        ref = envelope.scope_ref
        return {envelope.scope: int(ref) if envelope.scope == Envelope.Scope.TOKEN else ref}

    @extend_schema_field(EnvelopeItemSerializer(many=True))
    def get_items(self, envelope: Envelope) -> list[dict[str, Any]]:
        """Return the items with what is used of them."""
        return [state.as_json() for state in reading.items_of(envelope, self._hidden(envelope))]

    def get_ended_because(self, envelope: Envelope) -> str | None:
        """Return why it is over, or None."""
        return envelope.ended_because or None


class EnvelopeEndpoint(PlanEndpoint):
    def envelope(self, public_id: str) -> Envelope:
        """Return an envelope that the caller may see. Raises Http404."""
        try:
            return reading.listed(self.user).get(public_id=public_id)
        except Envelope.DoesNotExist:
            raise Http404 from None

    def envelope_response(self, envelope: Envelope, status: int = 200) -> Response:
        context = {"hidden": reading.hidden_parts(self.user, [envelope])}
        return Response(EnvelopeSerializer(envelope, context=context).data, status)

    def response_to(self, call: Call) -> Response:
        """Return the response to a proposal. Raises Conflict while other code than the catalog's runs here."""
        try:
            envelope = reading.listed(self.user).get(call=call)
        except Envelope.DoesNotExist:
            raise Conflict("Another version of this server proposes the envelope. List the envelopes soon.") from None
        return self.envelope_response(envelope, 201)


class EnvelopeList(EnvelopeEndpoint):
    """The envelopes."""

    required_scopes: ClassVar = {"GET": ["approvals:read", "calls:create"], "POST": ["calls:create"]}

    @extend_schema("envelopes_list", parameters=[EnvelopeQuery], responses=page_schema(EnvelopeSerializer))
    def get(self, request: Request) -> Response:
        """List the envelopes, newest first. An agent's token lists its own."""
        query, at = self.page_query(EnvelopeQuery)
        found = reading.listed(self.user)
        if "status" in query:
            found = found.filter(status=query["status"])
        if "tool" in query:
            found = found.filter(pk__in=EnvelopeItem.objects.filter(tool__name=query["tool"]).values("envelope"))
        page = paginate(found, order="-id", at=at)
        context = {"hidden": reading.hidden_parts(self.user, page.rows)}
        return paginated_response(request, page, lambda each: EnvelopeSerializer(each, context=context).data)

    @extend_schema(
        "envelopes_create",
        parameters=[IDEMPOTENCY_KEY, SESSION_NAME],
        request=EnvelopeBody,
        responses={201: EnvelopeSerializer, **refusal_responses(429)},
    )
    def post(self, request: Request) -> Response:
        """Propose an envelope; people then decide on its request like on that of a held call."""

        def propose() -> Response:
            call = create_call(CallOrder(PROPOSE_ENVELOPE, self.body(EnvelopeBody)), by=self.requester)
            return self.response_to(call)

        def repeat(plan_ref: str) -> Response:
            return self.response_to(selectors.newest_call_of(plan_ref))

        return respond_once(request, propose, repeat)


class EnvelopeDetail(EnvelopeEndpoint):
    """One envelope."""

    required_scopes: ClassVar = {"GET": ["approvals:read", "calls:create"]}

    @extend_schema("envelopes_read", responses=EnvelopeSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one envelope."""
        return self.envelope_response(self.envelope(public_id))


class EnvelopeEnd(EnvelopeEndpoint):
    """The end of an envelope."""

    required_scopes: ClassVar = {"POST": ["approvals:decide", "calls:create"]}

    @extend_schema("envelopes_end", request=EnvelopeEndBody, responses={200: EnvelopeSerializer})
    def post(self, request: Request, public_id: str) -> Response:
        """End an open envelope; 409 if it is not open. For its proposers, reviewers and administrators."""
        envelope = self.envelope(public_id)
        services.end_envelope(envelope, reason=self.body(EnvelopeEndBody)["reason"], by=self.user)
        return self.envelope_response(self.envelope(public_id))
