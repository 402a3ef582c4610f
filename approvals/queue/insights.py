"""Review insights: time to decision, verdicts, load per reviewer, open requests, fast approvals. Never writes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from statistics import median

from django.contrib.auth.models import User
from django.db.models import Count, Min, Q

from approvals.models import ApprovalRequest, Review
from approvals.requests.queries import pending_for
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.roles import ADMINISTRATOR, REVIEWER, NotAllowed, can_see_all, has_role
from catalog.calls.statistics import USUAL_DAYS, percentile
from catalog.core import clock

MAX_REVIEWS_COUNTED = 10_000
"""Maximum number of reviews evaluated, newest first."""
AGES = (3600, 4 * 3600, 24 * 3600)
"""Upper bounds of the age groups of open requests, in seconds."""
REFLEX_SECONDS, REFLEX_RATE, REFLEX_LEAST = 10.0, 0.95, 10
"""Thresholds for reflexive approval: median seconds, approve rate, and minimum number of approvals."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Median and 95th percentile of durations in seconds; None without data."""

    median: float | None
    p95: float | None

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Durations":
        ordered = sorted(seconds)
        return cls(percentile(ordered, 0.5), percentile(ordered, 0.95))


@dataclass(frozen=True, slots=True)
class Decisions:
    verdicts: Counter[str]
    spans: Durations

    @property
    def count(self) -> int:
        return self.verdicts.total()

    @property
    def approve_rate(self) -> float | None:
        """Share of approvals from 0 to 1; None without decisions."""
        return self.verdicts[ReviewVerdict.APPROVE] / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class ToolLine:
    tool: str
    decisions: Decisions
    waiting: int


@dataclass(frozen=True, slots=True)
class ReviewerLine:
    """Reviews by one person. Durations start at the request or the person's previous review, whichever is later."""

    username: str
    name: str
    reviews: Decisions
    share: float

    @property
    def is_reflex(self) -> bool:
        """True if the reviewer may be approving without reading."""
        rate, median = self.reviews.approve_rate or 0.0, self.reviews.spans.median
        enough = self.reviews.verdicts[ReviewVerdict.APPROVE] >= REFLEX_LEAST
        return enough and rate >= REFLEX_RATE and median is not None and median < REFLEX_SECONDS


@dataclass(frozen=True, slots=True)
class Day:
    """Decisions on one day (UTC)."""

    day: date
    approved: int = 0
    others: int = 0


@dataclass(frozen=True, slots=True)
class Age:
    """Number of open requests in one age group, with an upper bound in seconds; None for the last group."""

    under: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Insights:
    """Insights over the last `days`. `is_cut` is True if only the newest MAX_REVIEWS_COUNTED reviews were evaluated."""

    days: int
    since: datetime
    decisions: Decisions
    ended: Counter[str]
    waiting: int
    oldest: datetime | None
    ages: Sequence[Age]
    per_day: Sequence[Day]
    reviewers: Sequence[ReviewerLine]
    tools: Sequence[ToolLine]
    is_cut: bool = False

    @property
    def reflexes(self) -> list[ReviewerLine]:
        return [line for line in self.reviewers if line.is_reflex]


@dataclass(frozen=True, slots=True)
class _CountedReview:
    username: str
    name: str
    verdict: str
    at: datetime
    request: int
    requested_at: datetime
    opened_at: datetime
    decided_at: datetime | None
    tool: str


@dataclass(frozen=True, slots=True)
class _WaitingTool:
    """Open requests for one tool: number, oldest, and numbers younger than each of AGES."""

    tool: str
    count: int
    oldest: datetime
    younger: Sequence[int]


@dataclass(slots=True)
class _Tally:
    verdicts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def add(self, verdict: str, seconds: float) -> None:
        self.verdicts[verdict] += 1
        self.seconds.append(max(0.0, seconds))

    def done(self) -> Decisions:
        return Decisions(self.verdicts, Durations.of(self.seconds))


MAX_DECISIONS_TIMED = 2000
"""Maximum number of newest reviews from which decisions and their times are taken."""


@dataclass(frozen=True, slots=True)
class TimedDecision:
    """A decision with the time it took and the call it was about. `requester` and `token` are primary keys."""

    at: datetime
    seconds: float
    is_approval: bool
    call: int
    tool: str
    requester: int | None
    token: int | None


def decisions_since(since: datetime) -> tuple[list[TimedDecision], bool]:
    """Return the newest decisions from `since` on, and whether older ones of that time are left out.

    Each decision is that of the review that decided its request.
    """
    columns = (
        *("request_id", "at", "request__opened_at", "request__decided_at", "verdict", "request__call_id"),
        *("request__call__tool_name", "request__call__requested_by_id", "request__call__token_id"),
    )
    reviews = Review.objects.filter(undone_at=None).order_by("-id").values_list(*columns)
    newest = list(reviews[: MAX_DECISIONS_TIMED + 1])
    is_cut = len(newest) > MAX_DECISIONS_TIMED and newest[-1][1] >= since
    deciding: dict[int, TimedDecision] = {}
    for request, at, opened_at, decided_at, verdict, *call in newest[:MAX_DECISIONS_TIMED]:
        if decided_at is not None and at >= since:
            seconds = max(0.0, (at - opened_at).total_seconds())
            # The last review decided.
            deciding.setdefault(request, TimedDecision(at, seconds, verdict == ReviewVerdict.APPROVE, *call))
    return list(deciding.values()), is_cut


def seconds_to_decision(since: datetime) -> tuple[Mapping[date, float], bool]:
    """Return the median seconds from opening to decision of the requests decided on each day (UTC) from `since` on.

    The second value is True if only the newest `MAX_DECISIONS_TIMED` reviews of that time are counted.
    """
    seconds: dict[date, list[float]] = defaultdict(list)
    decisions, is_cut = decisions_since(since)
    for decision in decisions:
        seconds[decision.at.date()].append(decision.seconds)
    return {day: median(values) for day, values in seconds.items()}, is_cut


def insights_for(viewer: User, days: int = USUAL_DAYS) -> Insights:
    """Return the insights over the last `days`. Raises NotAllowed for users without a role."""
    if not can_see_all(viewer):
        raise NotAllowed("Insights are for people with a role; agents' tokens have none.")
    now = clock.now()
    since = now - timedelta(days=days)
    reviews = Review.objects.filter(undone_at=None, at__gte=since).order_by("-id")
    rows = reviews.values_list(
        *("person__username", "person__first_name", "person__last_name", "verdict", "at", "request_id"),
        *("round__created_at", "request__opened_at", "request__decided_at", "request__tool_version__tool__name"),
    )
    newest = [
        _CountedReview(username, f"{first} {last}".strip() or username, *rest)
        for username, first, last, *rest in rows[:MAX_REVIEWS_COUNTED]
    ]
    given = newest[::-1]
    # The deciding review of each decided request is its last one.
    decided = list({each.request: each for each in given if each.decided_at is not None}.values())
    waiting = _waiting_by_tool(viewer, now)
    unanswered = Q(status__in=(RequestStatus.EXPIRED, RequestStatus.WITHDRAWN), decided_at=None)
    ended = ApprovalRequest.objects.filter(unanswered, opened_at__gte=since).order_by()
    reviewers = _reviewers(given)
    if not has_role(viewer, REVIEWER, ADMINISTRATOR):
        reviewers = [replace(line, username="", name="A reviewer") for line in reviewers]
    return Insights(
        days=days,
        since=since,
        decisions=_decisions(decided),
        ended=Counter(dict(ended.values_list("status").annotate(count=Count("pk")))),
        waiting=sum(each.count for each in waiting),
        oldest=min((each.oldest for each in waiting), default=None),
        ages=_ages(waiting),
        per_day=_per_day(decided, since.date(), now.date()),
        reviewers=reviewers,
        tools=_tools(decided, {each.tool: each.count for each in waiting}),
        is_cut=len(given) == MAX_REVIEWS_COUNTED,
    )


def _decisions(reviews: Iterable[_CountedReview]) -> Decisions:
    tally = _Tally()
    for each in reviews:
        tally.add(each.verdict, (each.at - each.opened_at).total_seconds())
    return tally.done()


def _waiting_by_tool(viewer: User, now: datetime) -> list[_WaitingTool]:
    """Return the open requests by tool, counted in the database because there may be ten thousand."""
    younger = {f"under_{limit}": Count("pk", filter=Q(opened_at__gt=now - timedelta(seconds=limit))) for limit in AGES}
    by_tool = pending_for(viewer).order_by().values_list("tool_version__tool__name")
    rows = by_tool.annotate(count=Count("pk"), oldest=Min("opened_at"), **younger)
    return [_WaitingTool(tool, count, oldest, counts) for tool, count, oldest, *counts in rows]


def _ages(waiting: Iterable[_WaitingTool]) -> list[Age]:
    up_to = [sum(counts) for counts in zip(*(([*each.younger, each.count]) for each in waiting), strict=True)]
    up_to = up_to or [0] * (len(AGES) + 1)
    classes = zip((*AGES, None), up_to, [0, *up_to], strict=False)
    return [Age(limit, count - before) for limit, count, before in classes]


def _per_day(reviews: Iterable[_CountedReview], first: date, last: date) -> list[Day]:
    approved: Counter[date] = Counter()
    others: Counter[date] = Counter()
    for each in reviews:
        (approved if each.verdict == ReviewVerdict.APPROVE else others)[each.at.date()] += 1
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    return [Day(day, approved[day], others[day]) for day in days]


def _reviewers(reviews: Sequence[_CountedReview]) -> list[ReviewerLine]:
    """Return the reviews by person, most active first; `reviews` is in chronological order."""
    tallies: dict[tuple[str, str], _Tally] = defaultdict(_Tally)
    answered_before: dict[str, datetime] = {}
    for each in reviews:
        before = answered_before.get(each.username, each.requested_at)
        tallies[each.username, each.name].add(each.verdict, (each.at - max(before, each.requested_at)).total_seconds())
        answered_before[each.username] = each.at
    lines = [
        ReviewerLine(username, name, tally.done(), tally.verdicts.total() / len(reviews))
        for (username, name), tally in tallies.items()
    ]
    return sorted(lines, key=lambda line: (-line.reviews.count, line.username))


def _tools(reviews: Iterable[_CountedReview], waiting: Mapping[str, int]) -> list[ToolLine]:
    """Return decisions and open requests by tool, most requested first."""
    found: dict[str, list[_CountedReview]] = defaultdict(list)
    for each in reviews:
        found[each.tool].append(each)
    lines = [ToolLine(tool, _decisions(found[tool]), waiting.get(tool, 0)) for tool in found.keys() | waiting.keys()]
    return sorted(lines, key=lambda line: (-line.decisions.count - line.waiting, line.tool))
