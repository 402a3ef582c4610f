"""The saved views of the queue: which requests wait for whom. The lists, their counts and the API ask here.

Who may decide is said in full by `approvals.policies.eligibility`; here it is said of thousands of requests in one query: by the
rules that hold them, and one by one only where someone delegated or edited. Never writes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When

from approvals.models import ApprovalRequest, Delegation, PolicyRevision, Review, Round, Snooze
from approvals.policies import eligibility
from approvals.policies.eligibility import may_decide
from approvals.policies.rulebook import Rule, rule_of
from approvals.requests.queries import NOT_ASKED_YET, pending_for, requests_for, waiting_count, whole
from approvals.states import RequestStatus
from catalog.access.roles import agent_token_of
from catalog.core import clock
from catalog.definitions.levels import Reversibility, SafetyLevel
from catalog.models import CallRequester

if TYPE_CHECKING:
    from django.contrib.auth.models import User

WAITING, NEEDS_ME, CLAIMED, OTHERS, SNOOZED, DECIDED = SAVED_VIEWS = (
    "waiting",
    "needs_me",
    "claimed",
    "others",
    "snoozed",
    "decided",
)
"""All that waits; what the viewer may decide, has not put off and nobody else looks after; what they look after
themselves; what waits for others; what they put off; what was decided."""
OPEN_VIEWS = (WAITING, NEEDS_ME, CLAIMED, OTHERS, SNOOZED)
NOTHING = Q(pk__in=())


@dataclass(frozen=True, slots=True)
class Counts:
    """How many requests stand in each view of what waits."""

    waiting: int
    needs_me: int
    claimed: int
    others: int
    snoozed: int


class Queues:
    """The views of one viewer at one moment; what they need to know of the rules is read once."""

    def __init__(self, viewer: "User") -> None:
        self._viewer = viewer
        self._now = clock.now()

    def of(self, view: str) -> QuerySet[ApprovalRequest]:
        """Return the requests in a view, in no order yet."""
        if view == DECIDED:
            return requests_for(self._viewer).exclude(status=RequestStatus.PENDING).exclude(NOT_ASKED_YET)
        return pending_for(self._viewer).filter(self._within(view))

    @cached_property
    def waiting(self) -> int:
        """How many requests wait."""
        return self.counts.waiting if "counts" in self.__dict__ else waiting_count(self._viewer)

    @cached_property
    def counts(self) -> Counts:
        """How many requests stand in each view of what waits, by one query beside what the rules take.

        One more for who looks after some.
        """
        wanted = {NEEDS_ME: self._needs_me, CLAIMED: self._is_mine, SNOOZED: self._is_snoozed}
        counted = {view: Count("pk", filter=condition) for view, condition in wanted.items()}
        found = pending_for(self._viewer).aggregate(waiting=Count("pk"), **counted)
        # The others are what is left, so that the longest condition is not looked at once more for each request.
        apart = self._is_mine & ~self._needs_me & ~self._is_snoozed
        mine_apart = pending_for(self._viewer).filter(apart).count() if found[CLAIMED] else 0
        others = found["waiting"] - found[NEEDS_ME] - found[SNOOZED] - mine_apart
        return Counts(others=max(0, others), **found)

    def _within(self, view: str) -> Q:
        """Say what of what waits stands in a view."""
        conditions: dict[str, Callable[[], Q]] = {  # what a view does not need of the rules is not read
            WAITING: Q,
            NEEDS_ME: lambda: self._needs_me,
            CLAIMED: lambda: self._is_mine,
            OTHERS: lambda: ~self._needs_me & ~self._is_mine & ~self._is_snoozed,
            SNOOZED: lambda: self._is_snoozed,
        }
        return conditions[view]()

    @cached_property
    def _needs_me(self) -> Q:
        if agent_token_of(self._viewer) is not None or not self._viewer.is_active:
            return NOTHING
        of_others = Q(claimed_until__gt=self._now) & ~Q(claimed_by=self._viewer.pk)
        return self._may_decide & ~self._has_answered & ~self._is_snoozed & ~of_others

    @cached_property
    def _is_mine(self) -> Q:
        return Q(claimed_by=self._viewer.pk, claimed_until__gt=self._now)

    @cached_property
    def _is_snoozed(self) -> Q:
        put_off = Snooze.objects.filter(person=self._viewer.pk, until__gt=self._now)
        return Q(pk__in=put_off.values("request"))

    @cached_property
    def _has_answered(self) -> Q:
        """Say that the viewer's answer to what is asked now is there, and others are missing."""
        given = Review.objects.filter(person=self._viewer.pk, undone_at=None, request__status=RequestStatus.PENDING)
        return Q(pk__in=given.filter(round__number=F("request__round_number")).values("request"))

    @cached_property
    def _may_decide(self) -> Q:
        held_by, self_review = self._rules
        asked = CallRequester.objects.filter(user=self._viewer.pk).values("call")
        is_own = Q(call__in=asked) & ~Q(policy_revision__in=self_review)
        apart, allowed = self._judged_apart
        return (held_by & ~is_own & ~Q(pk__in=apart)) | Q(pk__in=allowed)

    @cached_property
    def _rules(self) -> tuple[Q, list[int]]:
        """Return which requests are held by rules that the viewer counts for, and which rules let askers decide."""
        waiting = pending_for(self._viewer).order_by().values_list("policy_revision", "escalated_to").distinct()
        pairs = list(waiting)
        rules = _rules_of({revision for revision, _ in pairs})
        mine = [pair for pair in pairs if eligibility.groups_counting(_as_escalated(rules, *pair), self._viewer)]
        plain = [revision for revision, group in mine if not group]
        held_by = Q(policy_revision__in=plain, escalated_to="")
        for revision, group in mine:
            if group:
                held_by |= Q(policy_revision=revision, escalated_to=group)
        return held_by, [pk for pk, rule in rules.items() if rule.allow_self_review]

    @cached_property
    def _judged_apart(self) -> tuple[list[int], list[int]]:
        """Return which requests were delegated to the viewer or edited by them, and which of those they may decide."""
        handed = Delegation.objects.filter(to=self._viewer.pk, request__status=RequestStatus.PENDING)
        edited = Round.objects.filter(editor=self._viewer.pk, request__status=RequestStatus.PENDING)
        special = list(handed.values_list("request").union(edited.values_list("request")))
        found = list(whole(pending_for(self._viewer).filter(pk__in=[pk for (pk,) in special]))) if special else []
        return [each.pk for each in found], [each.pk for each in found if may_decide(each, self._viewer) is None]


def needed_count(user: "User") -> int:
    """Return how many requests the user can answer now: the length of the view *Needs me*, which every page counts."""
    return Queues(user).of(NEEDS_ME).count()


def _rules_of(revisions: Iterable[int]) -> dict[int, Rule]:
    found = PolicyRevision.objects.filter(pk__in=revisions).select_related("policy")
    return {revision.pk: rule_of(revision) for revision in found}


def _as_escalated(rules: Mapping[int, Rule], revision: int, group: str) -> Rule:
    return replace(rules[revision], escalated_to=group)


def by_risk(requests: QuerySet[ApprovalRequest]) -> QuerySet[ApprovalRequest]:
    """Let each request have its `risk`: 0 for what cannot be taken back, more for less."""
    ranks = (Reversibility.IRREVERSIBLE, Reversibility.RESTORABLE, Reversibility.REVERSIBLE)
    cases = [When(tool_version__reversibility=each, then=Value(2 * rank)) for rank, each in enumerate(ranks)]
    dangerous = When(tool_version__safety_level=SafetyLevel.DANGEROUS, then=Value(0))
    level = Case(dangerous, default=Value(1), output_field=IntegerField())
    return requests.annotate(risk=Case(*cases, default=Value(0), output_field=IntegerField()) + level)


def count_twins(viewer: "User", requests: Iterable[ApprovalRequest]) -> None:
    """Let each request have its `twins`: how many others wait for the very same call. Each is answered by itself."""
    listed = list(requests)
    alike = {each.likeness for each in listed if _is_as_asked(each)}
    waiting = pending_for(viewer).filter(likeness__in=alike, round_number=1).order_by().values_list("likeness")
    counts = dict(waiting.annotate(count=Count("pk"))) if alike else {}
    for each in listed:
        each.twins = max(0, counts.get(each.likeness, 0) - 1) if _is_as_asked(each) else 0  # type: ignore[attr-defined] # for lists


def _is_as_asked(request: ApprovalRequest) -> bool:
    return bool(request.likeness) and request.round_number == 1 and request.status == RequestStatus.PENDING
