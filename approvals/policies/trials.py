"""Trials: the verdict of rules on trial is recorded with each call that they would have decided.

A call has one row for each such rule, written where the call is stored or, if it is refused, with its audit entry. The
figures of a trial are counted from these rows, so that calls wait for no counter. A new revision begins anew.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count
from django.utils.translation import gettext

from approvals.models import Policy, PolicyRevision, TrialResult
from approvals.policies.backtest import EFFECT_WORDS
from approvals.policies.envelope_rules import trial_verdicts_of
from approvals.policies.gate import rules_in_force
from approvals.policies.simulator import effect_of
from approvals.states import ReviewVerdict
from catalog.core import clock
from catalog.core.rate_limits import MAX_CLEARED_ROWS
from catalog.dispatch.pipeline import CallFacts
from catalog.models import Call

LISTED_CALLS = 100
KEPT_CALLS = 10_000
KEPT_DAYS = 90


def record_trials(facts: CallFacts, call: Call | None, *, now: datetime) -> None:
    """Store the verdict of each rule on trial on a call, and that of the rules in force.

    `call` is None if the call is refused, not stored.
    """
    rows = [
        TrialResult(
            revision_id=each.rule.revision_id,
            call=call,
            tool_name=facts.tool_name,
            would=effect_of(each.would),
            was=effect_of(each.was),
            at=now,
        )
        for each in trial_verdicts_of(facts, rules_in_force())
    ]
    if rows:
        TrialResult.objects.bulk_create(rows)


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """Calls with one verdict of a rule on trial and one of the rules in force (`was`), and how people decided them.

    A call that the rules in force hold may have started through a grant or an envelope, or been rejected as before.
    """

    would: str
    was: str
    calls: int
    approved: int
    rejected: int

    @property
    def differs(self) -> bool:
        return self.would != self.was

    @property
    def would_word(self) -> str:
        return gettext(EFFECT_WORDS[self.would])

    @property
    def was_word(self) -> str:
        return gettext(EFFECT_WORDS[self.was])


@dataclass(frozen=True, slots=True)
class TrialCall:
    """One of the last calls of a trial; `call` is None if it was refused, `review` empty if nobody decided it."""

    result: TrialResult
    review: str = ""

    @property
    def call(self) -> Call | None:
        return self.result.call

    @property
    def would_word(self) -> str:
        return gettext(EFFECT_WORDS[self.result.would])

    @property
    def was_word(self) -> str:
        return gettext(EFFECT_WORDS[self.result.was])

    @property
    def review_word(self) -> str:
        return str(ReviewVerdict(self.review).label) if self.review else ""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """The figures of a trial since a time, and its last calls, the newest first."""

    since: datetime
    outcomes: Sequence[TrialOutcome]
    calls: Sequence[TrialCall]

    def count(self, would: str) -> int:
        return sum(each.calls for each in self.outcomes if each.would == would)

    @property
    def held(self) -> int:
        return self.count(PolicyRevision.Effect.HOLD)

    @property
    def allowed(self) -> int:
        return self.count(PolicyRevision.Effect.ALLOW)

    @property
    def denied(self) -> int:
        return self.count(PolicyRevision.Effect.DENY)

    @property
    def total(self) -> int:
        return sum(each.calls for each in self.outcomes)

    @property
    def differs(self) -> int:
        """Number of calls on which the rules in force had another verdict."""
        return sum(each.calls for each in self.outcomes if each.differs)


def trial_report(policy: Policy) -> TrialReport | None:
    """Return the report on a policy's trial; None for a policy whose revision in force is not on trial."""
    revision = policy.revision
    if revision is None or revision.mode != PolicyRevision.Mode.TRIAL:
        return None
    results = TrialResult.objects.filter(revision=revision)
    reviews = "call__approval__reviews"
    reviewed = results.filter(**{f"{reviews}__isnull": False, f"{reviews}__undone_at": None}).order_by(f"{reviews}__pk")
    last_reviews = {
        call: rest for call, *rest in reviewed.values_list("call_id", "would", "was", f"{reviews}__verdict")
    }
    decided = Counter((would, was, verdict) for would, was, verdict in last_reviews.values())
    counted = results.order_by("would", "was").values_list("would", "was").annotate(calls=Count("pk"))
    outcomes = [
        TrialOutcome(
            would,
            was,
            calls,
            decided[would, was, ReviewVerdict.APPROVE],
            decided[would, was, ReviewVerdict.REJECT],
        )
        for would, was, calls in counted
    ]
    newest = list(results.select_related("call").order_by("-pk")[:LISTED_CALLS])
    calls = [TrialCall(each, last_reviews[each.call_id][-1] if each.call_id in last_reviews else "") for each in newest]
    return TrialReport(_counted_since(revision, sum(each.calls for each in outcomes)), outcomes, calls)


def _counted_since(revision: PolicyRevision, total: int) -> datetime:
    """Return the time since which the rows are complete: the revision's, unless older rows were deleted."""
    oldest = clock.now() - timedelta(days=KEPT_DAYS)
    if total >= KEPT_CALLS:
        first = TrialResult.objects.filter(revision=revision).order_by("pk").values_list("at", flat=True).first()
        oldest = max(oldest, first) if first is not None else oldest
    return max(revision.created_at, oldest)


def clear_trials(*, now: datetime) -> int:
    """Delete rows older than KEPT_DAYS and those of a trial beyond its newest KEPT_CALLS; return their number.

    At most MAX_CLEARED_ROWS are deleted.
    """
    results = TrialResult.objects.order_by("pk")
    old = list(results.filter(at__lt=now - timedelta(days=KEPT_DAYS)).values_list("pk", flat=True)[:MAX_CLEARED_ROWS])
    on_trial = Policy.objects.filter(ended_at=None, revision__mode=PolicyRevision.Mode.TRIAL)
    for revision in on_trial.values_list("revision_id", flat=True):
        if len(old) >= MAX_CLEARED_ROWS:
            break
        mine = TrialResult.objects.filter(revision=revision)
        first_beyond = mine.order_by("-pk").values_list("pk", flat=True)[KEPT_CALLS : KEPT_CALLS + 1].first()
        if first_beyond is not None:
            beyond = mine.filter(pk__lte=first_beyond).order_by("pk").values_list("pk", flat=True)
            old += list(beyond[: MAX_CLEARED_ROWS - len(old)])
    return TrialResult.objects.filter(pk__in=old).delete()[0] if old else 0
