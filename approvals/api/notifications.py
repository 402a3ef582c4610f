"""REST endpoints of notifications: own preferences and deliveries; all deliveries and retry for administrators."""

from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.request_serializers import RemarkBody
from approvals.models import Delivery, NotificationChoice
from approvals.notifications.delivery import retry_delivery
from approvals.notifications.preferences import (
    MAX_ADDRESSES,
    addresses_by_label,
    choice_for,
    deliveries_for,
    own_deliveries,
    set_choice,
)
from catalog.access.personal_settings import formats_of
from catalog.rest.idempotency import IDEMPOTENCY_KEY, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.serializers import PageQuery, StrictChoiceField, StrictSerializer, StrictTextField
from catalog.rest.views import Endpoint


class ChoiceBody(StrictSerializer):
    """The fields to change; omitted fields keep their values."""

    by_mail = serializers.BooleanField(required=False)
    addresses = serializers.ListField(
        child=StrictTextField(max_length=2000),
        required=False,
        max_length=MAX_ADDRESSES,
        help_text="The complete list: new addresses, and the masked form of each address to keep.",
    )
    quiet_from = StrictTextField(
        required=False, allow_null=True, max_length=8, help_text="A time such as 22:00, or null."
    )
    quiet_until = StrictTextField(required=False, allow_null=True, max_length=8)
    time_zone = StrictTextField(
        required=False, max_length=64, help_text="That of your profile, for example Europe/Berlin."
    )


@extend_schema_field({"type": ["string", "null"], "pattern": "^[0-2][0-9]:[0-5][0-9]$", "examples": ["22:00"]})
class HourField(serializers.TimeField):
    """A time of day in hours and minutes, or null."""

    def __init__(self, **options: Any) -> None:
        super().__init__(format="%H:%M", allow_null=True, **options)


class ChoiceSerializer(serializers.Serializer[Any]):
    """Notification preferences of a user. Addresses are masked; sending a mask back keeps the address."""

    by_mail = serializers.BooleanField()
    addresses = serializers.SerializerMethodField()
    quiet_from = HourField()
    quiet_until = HourField()
    time_zone = serializers.SerializerMethodField(help_text="That of your profile, for the quiet hours.")

    def get_time_zone(self, choice: NotificationChoice) -> str:
        """Return the time zone of the person."""
        return formats_of(choice.person).time_zone

    def get_addresses(self, choice: Any) -> list[str]:
        """Return the masked addresses."""
        return list(addresses_by_label(choice))


class DeliveryQuery(PageQuery):
    status = StrictChoiceField(choices=Delivery.Status.values, required=False)


class DeliverySerializer(serializers.Serializer[Any]):
    """One notification to one address about one event."""

    id = serializers.IntegerField(source="pk")
    event = serializers.CharField(source="kind")
    request = serializers.CharField(source="request.public_id", default=None, allow_null=True)
    person = serializers.CharField(source="person.username", default=None, allow_null=True)
    channel = serializers.CharField()
    address = serializers.CharField(source="shown_address", help_text="The address without its secrets.")
    status = serializers.ChoiceField(choices=Delivery.Status.choices)
    attempts = serializers.IntegerField()
    error = serializers.CharField(source="last_error", help_text="The last delivery error; empty if there is none.")
    due_at = serializers.DateTimeField()
    created_at = serializers.DateTimeField()
    sent_at = serializers.DateTimeField(allow_null=True)


class NotificationsDetail(Endpoint):
    """Notification preferences of the caller."""

    required_scopes: ClassVar = {"GET": ["approvals:read"], "PATCH": ["approvals:decide"]}

    @extend_schema("notifications_read", responses=ChoiceSerializer)
    def get(self, request: Request) -> Response:
        """Show your notification preferences."""
        return Response(ChoiceSerializer(choice_for(self.user)).data)

    @extend_schema("notifications_change", request=ChoiceBody, responses=ChoiceSerializer)
    def patch(self, request: Request) -> Response:
        """Change your notification preferences. The audit log records the channels, not the addresses."""
        return Response(ChoiceSerializer(set_choice(self.user, self.body(ChoiceBody))).data)


class OwnDeliveries(Endpoint):
    """Deliveries to the caller."""

    required_scopes: ClassVar = {"GET": ["approvals:read"]}

    @extend_schema("notifications_deliveries", parameters=[PageQuery], responses=page_schema(DeliverySerializer))
    def get(self, request: Request) -> Response:
        """List your deliveries, newest first."""
        _, at = self.page_query(PageQuery)
        page = paginate(own_deliveries(self.user), order="-id", at=at)
        return paginated_response(request, page, lambda each: DeliverySerializer(each).data)


class DeliveryList(Endpoint):
    """Deliveries to all users."""

    required_scopes: ClassVar = {"GET": ["audit:read"]}

    @extend_schema("deliveries_list", parameters=[DeliveryQuery], responses=page_schema(DeliverySerializer))
    def get(self, request: Request) -> Response:
        """List all deliveries, newest first. Administrators only."""
        query, at = self.page_query(DeliveryQuery)
        page = paginate(deliveries_for(self.user, **query), order="-id", at=at)
        return paginated_response(request, page, lambda each: DeliverySerializer(each).data)


class DeliveryRetry(Endpoint):
    """Retry of a delivery."""

    required_scopes: ClassVar = {"POST": ["policies:write"]}

    @extend_schema("deliveries_retry", parameters=[IDEMPOTENCY_KEY], request=RemarkBody, responses=DeliverySerializer)
    def post(self, request: Request, number: int) -> Response:
        """Retry a failed delivery immediately; 409 if it has not failed. Administrators only."""

        def retry() -> Response:
            self.body(RemarkBody)
            retry_delivery(self._delivery(number), by=self.user)
            return self._detail_response(number)

        return respond_once(request, retry, lambda _: self._detail_response(number))

    def _detail_response(self, number: int) -> Response:
        return Response(DeliverySerializer(self._delivery(number)).data)

    def _delivery(self, number: int) -> Delivery:
        try:
            return deliveries_for(self.user).get(pk=number)
        except Delivery.DoesNotExist:
            raise Http404 from None
