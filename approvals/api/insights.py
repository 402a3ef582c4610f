"""REST endpoint of the insights into decisions."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.queue.insights import Decisions, insights_for
from approvals.states import RequestStatus, ReviewVerdict
from catalog.calls.statistics import LEAST_DAYS, MOST_DAYS, USUAL_DAYS
from catalog.rest.serializers import QuerySerializer
from catalog.rest.views import Endpoint


class InsightsQuery(QuerySerializer):
    days = serializers.IntegerField(default=USUAL_DAYS, min_value=LEAST_DAYS, max_value=MOST_DAYS)


class DecisionsSerializer(serializers.Serializer[Any]):
    """Counts by verdict, and times to decide in seconds."""

    count = serializers.IntegerField()
    verdicts = serializers.SerializerMethodField()
    approve_rate = serializers.FloatField(allow_null=True)
    median_seconds = serializers.FloatField(source="spans.median", allow_null=True)
    p95_seconds = serializers.FloatField(source="spans.p95", allow_null=True)

    def get_verdicts(self, decisions: Decisions) -> dict[str, int]:
        """Return the count of each verdict."""
        return {verdict: decisions.verdicts[verdict] for verdict in ReviewVerdict.values}


class AgeSerializer(serializers.Serializer[Any]):
    """Number of requests that have waited less than `under_seconds` and longer than the previous class."""

    under_seconds = serializers.IntegerField(source="under", allow_null=True)
    count = serializers.IntegerField()


class DaySerializer(serializers.Serializer[Any]):
    """Decisions of one day in UTC."""

    day = serializers.DateField()
    approved = serializers.IntegerField()
    others = serializers.IntegerField()


class ReviewerSerializer(serializers.Serializer[Any]):
    """Reviews of one person. Time counts from the request or the person's previous review, whichever is later."""

    person = serializers.CharField(source="username")
    name = serializers.CharField()
    reviews = DecisionsSerializer()
    share = serializers.FloatField(help_text="Share of all reviews, 0 to 1.")
    is_reflex = serializers.BooleanField(
        help_text="True if nearly all were approved, most of them faster than one can read."
    )


class ToolLineSerializer(serializers.Serializer[Any]):
    """Decisions about one tool, and the number of waiting requests."""

    tool = serializers.CharField()
    decisions = DecisionsSerializer()
    waiting = serializers.IntegerField()


class InsightsSerializer(serializers.Serializer[Any]):
    """Statistics of decisions."""

    days = serializers.IntegerField()
    since = serializers.DateTimeField()
    decisions = DecisionsSerializer()
    unanswered = serializers.SerializerMethodField()
    waiting = serializers.IntegerField()
    oldest = serializers.DateTimeField(allow_null=True, help_text="Opening time of the oldest waiting request.")
    ages = AgeSerializer(many=True)
    per_day = DaySerializer(many=True)
    reviewers = ReviewerSerializer(many=True)
    tools = ToolLineSerializer(many=True)
    is_cut = serializers.BooleanField(help_text="True if only the newest reviews of the period were counted.")

    def get_unanswered(self, found: Any) -> dict[str, int]:
        """Return the number of requests that ended without a decision, by status."""
        return {status: found.ended[status] for status in (RequestStatus.EXPIRED.value, RequestStatus.WITHDRAWN.value)}


class InsightsDetail(Endpoint):
    """Statistics of decisions."""

    required_scopes: ClassVar = {"GET": ["approvals:read"]}

    @extend_schema("insights_read", parameters=[InsightsQuery], responses=InsightsSerializer)
    def get(self, request: Request) -> Response:
        """Show decisions by verdict, reviewer and tool, times to decide, and waiting requests. Requires a role."""
        return Response(InsightsSerializer(insights_for(self.user, self.query(InsightsQuery)["days"])).data)
