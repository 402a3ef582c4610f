"""The insights over REST: how people decide, for some days."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.queue.insights import LEAST_DAYS, MOST_DAYS, USUAL_DAYS, Decisions, insights_for
from approvals.states import RequestStatus, ReviewVerdict
from catalog.rest.serializers import QuerySerializer
from catalog.rest.views import Endpoint


class InsightsQuery(QuerySerializer):
    """Over how many days."""

    days = serializers.IntegerField(default=USUAL_DAYS, min_value=LEAST_DAYS, max_value=MOST_DAYS)


class DecisionsSerializer(serializers.Serializer[Any]):
    """What was decided: by verdict, and how many seconds it took."""

    count = serializers.IntegerField()
    verdicts = serializers.SerializerMethodField()
    approve_rate = serializers.FloatField(allow_null=True)
    median_seconds = serializers.FloatField(source="spans.median", allow_null=True)
    p95_seconds = serializers.FloatField(source="spans.p95", allow_null=True)

    def get_verdicts(self, decisions: Decisions) -> dict[str, int]:
        """Count each verdict."""
        return {verdict: decisions.verdicts[verdict] for verdict in ReviewVerdict.values}


class AgeSerializer(serializers.Serializer[Any]):
    """How many have waited less than so many seconds, and longer than those of the class before."""

    under_seconds = serializers.IntegerField(source="under", allow_null=True)
    count = serializers.IntegerField()


class DaySerializer(serializers.Serializer[Any]):
    """What was decided on a day, in UTC."""

    day = serializers.DateField()
    approved = serializers.IntegerField()
    others = serializers.IntegerField()


class ReviewerSerializer(serializers.Serializer[Any]):
    """What one person reviewed; their seconds begin when they could turn to it, after their answer before."""

    person = serializers.CharField(source="username")
    name = serializers.CharField()
    reviews = DecisionsSerializer()
    share = serializers.FloatField(help_text="Of all reviews, from 0 to 1.")
    is_reflex = serializers.BooleanField(help_text="Nearly all approved, most of it faster than it can be read.")


class ToolLineSerializer(serializers.Serializer[Any]):
    """How the requests about one tool were decided, and how many wait."""

    tool = serializers.CharField()
    decisions = DecisionsSerializer()
    waiting = serializers.IntegerField()


class InsightsSerializer(serializers.Serializer[Any]):
    """How people decided."""

    days = serializers.IntegerField()
    since = serializers.DateTimeField()
    decisions = DecisionsSerializer()
    unanswered = serializers.SerializerMethodField()
    waiting = serializers.IntegerField()
    oldest = serializers.DateTimeField(allow_null=True, help_text="Since when the oldest waits.")
    ages = AgeSerializer(many=True)
    per_day = DaySerializer(many=True)
    reviewers = ReviewerSerializer(many=True)
    tools = ToolLineSerializer(many=True)
    is_cut = serializers.BooleanField(help_text="Only the newest reviews of these days were counted.")

    def get_unanswered(self, found: Any) -> dict[str, int]:
        """Count what ended without an answer."""
        return {status: found.ended[status] for status in (RequestStatus.EXPIRED.value, RequestStatus.WITHDRAWN.value)}


class InsightsDetail(Endpoint):
    """How people decide."""

    required_scopes: ClassVar = {"GET": ["approvals:read"]}

    @extend_schema("insights_read", parameters=[InsightsQuery], responses=InsightsSerializer)
    def get(self, request: Request) -> Response:
        """Show how long decisions take, what they are, who bears the load and what waits; for people with a role."""
        return Response(InsightsSerializer(insights_for(self.user, self.query(InsightsQuery)["days"])).data)
