"""Saved views of the queue: lists of requests for a user, their counts and pages, and duplicates.

Used by the pages, the badge and the API. The rules of `approvals.policies.eligibility` become one query over thousands
of requests here; only delegated and edited requests are checked individually. Never writes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

from django.contrib.auth.models import User
from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When, Window

from approvals.models import ApprovalRequest, Delegation, PolicyRevision, Review, Round, Snooze
from approvals.policies.eligibility import counting_groups, may_decide
from approvals.policies.rulebook import rule_from_revision
from approvals.requests.queries import (
    HIDDEN_PRE_APPROVALS,
    pending_for,
    requests_for,
    waiting_count,
    with_list_related,
    with_related,
    with_snooze,
)
from approvals.states import RequestStatus
from catalog.access.roles import agent_token_of
from catalog.core import clock
from catalog.definitions.levels import Reversibility, SafetyLevel
from catalog.models import CallRequester, ToolVersion
from catalog.rest.pagination import Page, PageParameters, paginate

SAVED_VIEWS = ("waiting", "needs_me", "claimed", "others", "snoozed", "decided")
WAITING, NEEDS_ME, CLAIMED, OTHERS, SNOOZED, DECIDED = SAVED_VIEWS
"""WAITING: all open requests. NEEDS_ME: the viewer can decide them, has not snoozed them, and nobody else claimed them.
CLAIMED, SNOOZED: by the viewer. OTHERS: they need someone else. DECIDED: decided requests."""
OPEN_VIEWS = (WAITING, NEEDS_ME, CLAIMED, OTHERS, SNOOZED)
HOME = "home"
"""The list on the home page: the requests of NEEDS_ME, of which it shows the first few. No view of the API."""
EXPIRES_SOON = timedelta(minutes=5)
MAX_EXPIRING = 20
"""Maximum number of requests listed above all others because they expire soon."""
MATCH_NOTHING = Q(pk__in=())


@dataclass(frozen=True, slots=True)
class ViewCounts:
    waiting: int
    needs_me: int
    claimed: int
    others: int
    snoozed: int


class Queues:
    """Views of one viewer at one time; rules are loaded once."""

    def __init__(self, viewer: User) -> None:
        self._viewer = viewer
        self._now = clock.now()
        self._expiring: dict[str, list[int]] = {}

    def of(self, view: str) -> QuerySet[ApprovalRequest]:
        """Return the requests in a view, unordered."""
        if view == DECIDED:
            return requests_for(self._viewer).exclude(status=RequestStatus.PENDING).exclude(HIDDEN_PRE_APPROVALS)
        conditions: dict[str, Callable[[], Q]] = {  # lazy, so that a view loads only the rules it needs
            WAITING: Q,
            NEEDS_ME: lambda: self._needs_me,
            HOME: lambda: self._needs_me,
            CLAIMED: lambda: self._is_mine,
            OTHERS: lambda: ~self._needs_me & ~self._is_mine & ~self._is_snoozed,
            SNOOZED: lambda: self._is_snoozed,
        }
        return pending_for(self._viewer).filter(conditions[view]())

    def expiring(self, view: str) -> list[int]:
        """Return the keys of the view's requests that expire within `EXPIRES_SOON`, sorted by time of expiry."""
        if view == DECIDED:
            return []
        if view not in self._expiring:
            soon = self.of(view).filter(expires_at__lt=self._now + EXPIRES_SOON).order_by("expires_at", "pk")
            self._expiring[view] = list(soon.values_list("pk", flat=True)[:MAX_EXPIRING])
        return self._expiring[view]

    @cached_property
    def waiting(self) -> int:
        return self.counts.waiting if "counts" in self.__dict__ else waiting_count(self._viewer)

    @cached_property
    def needed(self) -> int:
        """Number of requests that the viewer can answer now."""
        return self.counts.needs_me if "counts" in self.__dict__ else self.of(NEEDS_ME).count()

    def first_needed(self, most: int) -> Sequence[ApprovalRequest]:
        """Return the keys of the first requests that the viewer can answer, and count all for `needed`; one query.

        Requests that expire soon precede all others, which are sorted by age.
        """
        soon = Case(When(expires_at__lt=self._now + EXPIRES_SOON, then=F("expires_at")))
        needed = self.of(NEEDS_ME).only("pk").annotate(all=Window(Count("pk")))
        first = list(needed.order_by(soon.asc(nulls_last=True), "opened_at", "pk")[:most])
        self.needed = first[0].all if first else 0
        return first

    def counted(self) -> "Queues":
        """Return these queues with the counts of all views, from which `needed` and `waiting` then come."""
        self.__dict__["counts"] = self.counts
        return self

    @cached_property
    def counts(self) -> ViewCounts:
        """Number of requests in each view of open requests."""
        conditions = {NEEDS_ME: self._needs_me, CLAIMED: self._is_mine, SNOOZED: self._is_snoozed}
        counted = {view: Count("pk", filter=condition) for view, condition in conditions.items()}
        found = pending_for(self._viewer).aggregate(waiting=Count("pk"), **counted)
        # `others` is the remainder, which avoids evaluating the longest condition again for each request.
        apart = self._is_mine & ~self._needs_me & ~self._is_snoozed
        mine_apart = pending_for(self._viewer).filter(apart).count() if found[CLAIMED] else 0
        others = found["waiting"] - found[NEEDS_ME] - found[SNOOZED] - mine_apart
        return ViewCounts(others=max(0, others), **found)

    @cached_property
    def _needs_me(self) -> Q:
        if agent_token_of(self._viewer) is not None or not self._viewer.is_active:
            return MATCH_NOTHING
        of_others = Q(claimed_until__gt=self._now) & ~Q(claimed_by=self._viewer.pk)
        return self._may_decide & ~self._has_answered & ~self._is_snoozed & ~of_others

    @cached_property
    def _is_mine(self) -> Q:
        return Q(claimed_by=self._viewer.pk, claimed_until__gt=self._now)

    @cached_property
    def _is_snoozed(self) -> Q:
        snoozes = Snooze.objects.filter(person=self._viewer.pk, until__gt=self._now)
        return Q(pk__in=snoozes.values("request"))

    @cached_property
    def _has_answered(self) -> Q:
        """Condition for pending requests that the viewer has already answered in the current round."""
        reviews = Review.objects.filter(person=self._viewer.pk, undone_at=None, request__status=RequestStatus.PENDING)
        return Q(pk__in=reviews.filter(round__number=F("request__round_number")).values("request"))

    @cached_property
    def _may_decide(self) -> Q:
        held_by, self_review = self._rules
        own_calls = CallRequester.objects.filter(user=self._viewer.pk).values("call")
        is_own = Q(call__in=own_calls) & ~Q(policy_revision__in=self_review)
        apart, allowed = self._individually_judged
        return (held_by & ~is_own & ~Q(pk__in=apart)) | Q(pk__in=allowed)

    @cached_property
    def _rules(self) -> tuple[Q, list[int]]:
        """Return the condition for requests whose rule lets the viewer decide, and the rules that allow self-review."""
        waiting = pending_for(self._viewer).order_by().values_list("policy_revision", "escalated_to").distinct()
        pairs = list(waiting)
        revisions = PolicyRevision.objects.filter(pk__in={pk for pk, _ in pairs}).select_related("policy")
        rules = {revision.pk: rule_from_revision(revision) for revision in revisions}
        mine = [
            (pk, group) for pk, group in pairs if counting_groups(replace(rules[pk], escalated_to=group), self._viewer)
        ]
        plain = [revision for revision, group in mine if not group]
        held_by = Q(policy_revision__in=plain, escalated_to="")
        for revision, group in mine:
            if group:
                held_by |= Q(policy_revision=revision, escalated_to=group)
        return held_by, [pk for pk, rule in rules.items() if rule.allow_self_review]

    @cached_property
    def _individually_judged(self) -> tuple[list[int], list[int]]:
        """Return two lists of keys: requests delegated to or edited by the viewer; those of them they may decide."""
        delegations = Delegation.objects.filter(to=self._viewer.pk, request__status=RequestStatus.PENDING)
        edited = Round.objects.filter(editor=self._viewer.pk, request__status=RequestStatus.PENDING)
        special = list(delegations.values_list("request").union(edited.values_list("request")))
        keys = [pk for (pk,) in special]
        found = list(with_related(pending_for(self._viewer).filter(pk__in=keys))) if keys else []
        return [each.pk for each in found], [each.pk for each in found if may_decide(each, self._viewer) is None]


def needed_count(user: User) -> int:
    """Return the number of requests in the view *Needs me*, shown on every page."""
    return Queues(user).of(NEEDS_ME).count()


def annotate_risk(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Annotate each request with `risk`: 0 for irreversible and dangerous, higher for less risk."""
    ranks = (Reversibility.IRREVERSIBLE, Reversibility.RESTORABLE, Reversibility.REVERSIBLE)
    cases = [When(tool_version__reversibility=each, then=Value(2 * rank)) for rank, each in enumerate(ranks)]
    dangerous = When(tool_version__safety_level=SafetyLevel.DANGEROUS, then=Value(0))
    level = Case(dangerous, default=Value(1), output_field=IntegerField())
    return requests.annotate(risk=Case(*cases, default=Value(0), output_field=IntegerField()) + level)


def count_duplicates(viewer: User, requests: Iterable[ApprovalRequest]) -> None:
    """Set `duplicates` of each request: the number of other open requests for the same call."""
    listed = list(requests)
    alike = {each.likeness for each in listed if _is_unedited_pending(each)}
    waiting = pending_for(viewer).filter(likeness__in=alike, round_number=1).order_by().values_list("likeness")
    counts = dict(waiting.annotate(count=Count("pk"))) if alike else {}
    for each in listed:
        each.duplicates = max(0, counts.get(each.likeness, 0) - 1) if _is_unedited_pending(each) else 0  # type: ignore[attr-defined] # for lists


def _is_unedited_pending(request: ApprovalRequest) -> bool:
    return bool(request.likeness) and request.round_number == 1 and request.status == RequestStatus.PENDING


STATUSES = (*RequestStatus.values, *SAVED_VIEWS)
"""Values for filtering a list: a status or a saved view."""
ORDERS = ("opened", "-opened", "risk")
OLDEST_FIRST_STATUSES = frozenset(SAVED_VIEWS) - {DECIDED} | {RequestStatus.PENDING}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilters:
    """Filters and order of a list; an empty filter does not apply."""

    status: str = ""
    tool: str = ""
    plan: str = ""
    mine: bool = False
    order: str = ""

    @property
    def sorted_by(self) -> str:
        """Sort field of the list: open requests oldest first, all others newest first."""
        waits = self.status in OLDEST_FIRST_STATUSES
        order = self.order or ("opened" if waits else "-opened")
        # Open requests have an index by time; all others are sorted by key, which has the same order.
        return order if order == "risk" else order.replace("opened", "opened_at" if waits else "id")


def page_for(viewer: User, filters: RequestFilters, page_parameters: PageParameters) -> Page[ApprovalRequest]:
    """Return one page of the matching requests that the viewer may see, with the relations for lists."""
    found = listed_for(viewer, filters).only("pk", "opened_at")  # sort narrow rows, then load the wide ones by key
    found = annotate_risk(found) if filters.sorted_by == "risk" else found
    page = paginate(found, order=filters.sorted_by, at=page_parameters)
    keys = [row.pk for row in page.rows]
    rows = with_snooze(with_list_related(ApprovalRequest.objects.filter(pk__in=keys)), viewer).in_bulk() if keys else {}
    page = replace(page, rows=[rows[key] for key in keys if key in rows])
    count_duplicates(viewer, page.rows)
    return page


def listed_for(viewer: User, filters: RequestFilters) -> QuerySet[ApprovalRequest]:
    """Return the matching requests that the viewer may see, unordered."""
    status = WAITING if filters.status == RequestStatus.PENDING else filters.status
    if status in SAVED_VIEWS:
        found = Queues(viewer).of(status)
    else:
        found = requests_for(viewer).exclude(HIDDEN_PRE_APPROVALS)
        found = found.filter(status=status) if status else found
    if filters.plan:
        found = found.filter(plan_ref=filters.plan)
    if filters.mine:
        found = found.filter(call__requested_by=viewer.pk)
    if not filters.tool:
        return found
    # Filter by keys instead of by a joined name, so that the index still provides the order.
    versions = ToolVersion.objects.filter(tool__name=filters.tool).values_list("pk", flat=True)
    return found.filter(tool_version__in=list(versions))


MOST_DUPLICATES = 20
"""Maximum number of duplicates listed on a page; the queue counts all of them."""


def duplicates_of(viewer: User, request: ApprovalRequest) -> list[ApprovalRequest]:
    """Return the other open requests for the same call that the viewer may see, oldest first; none after an edit."""
    if request.status != RequestStatus.PENDING or request.round_number != 1 or not request.likeness:
        return []
    same = pending_for(viewer).filter(likeness=request.likeness, round_number=1).exclude(pk=request.pk)
    return list(same.select_related("call__token__user", "call__requested_by").order_by("pk")[:MOST_DUPLICATES])
