"""Stops by rule: a policy with `stop_after` sets a stop for a token, or a person, whose calls it refuses too often.

Each refused call is one row, stored with its audit entry. The rows are counted after the commit, in a transaction of
their own: setting a stop takes a lock that comes before that of the audit log, which the refusal holds already. The
last of several refusals at once sees the rows of all. The ticker counts rows that a dying process left uncounted.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from approvals.models import RefusedCall
from approvals.policies.rulebook import Rule
from approvals.policy_language.terms import MAX_STOP_SECONDS
from approvals.stops.services import AlreadyStopped, scope_of_person, scope_of_token, set_stop
from catalog.core.rate_limits import MAX_CLEARED_ROWS
from catalog.core.transactions import retry_on_lock, run_each
from catalog.ui.labels import format_timespan

BATCH = 100


def record_refused_call(rule: Rule, *, token_id: int | None, person_id: int | None, now: datetime) -> None:
    """Store that a rule refused a call, in its open transaction, and count such calls after the commit.

    Does nothing for a rule without `stop_after`.
    """
    if not rule.stop_after:
        return
    person = None if token_id else person_id
    refused = RefusedCall.objects.create(revision_id=rule.revision_id, token_id=token_id, person_id=person, at=now)
    transaction.on_commit(lambda: count_refused_calls(refused.pk), robust=True)


@retry_on_lock
def count_refused_calls(refused_pk: int) -> bool:
    """Set a stop if the rule has refused more calls of the same token or person than it bears; return if it did.

    With a stop, set now or before, counting begins anew.
    """
    with transaction.atomic():
        refused = (
            RefusedCall.objects.select_related("revision__policy", "token", "person").filter(pk=refused_pk).first()
        )
        if refused is None or refused.revision.stop_after is None:
            return False  # counted with another one, and a stop set
        most, seconds = refused.revision.stop_after["count"], refused.revision.stop_after["seconds"]
        refused_calls = RefusedCall.objects.filter(
            revision=refused.revision_id, token=refused.token_id, person=refused.person_id
        )
        if not _exceeds(refused_calls, refused.at, most, timedelta(seconds=seconds)):
            RefusedCall.objects.filter(pk=refused_pk).update(is_counted=True)
            return False
        is_set = _set_stop(refused, most, seconds)
        refused_calls.delete()
    return is_set


def _exceeds(refused_calls: "QuerySet[RefusedCall]", at: datetime, most: int, window: timedelta) -> bool:
    """Return True if more than `most` of these calls were refused within one window that the time `at` is in.

    Later calls count, too: their refusals may have been counted before this one was committed.
    """
    near = refused_calls.filter(at__gt=at - window, at__lt=at + window).order_by("at")
    if near.count() <= most:
        return False
    times = list(near.values_list("at", flat=True)[: 2 * most + 1])
    return any(last - first < window for first, last in zip(times, times[most:], strict=False))


def _set_stop(refused: RefusedCall, most: int, seconds: int) -> bool:
    name = refused.revision.policy.name
    calls = f"{most:,} call{'' if most == 1 else 's'}"
    reason = f"The policy “{name}” refused more than {calls} in {format_timespan(seconds)}."
    if refused.token is not None:
        scope = scope_of_token(refused.token)
    elif refused.person is not None:
        scope = scope_of_person(refused.person)
    else:
        return False
    try:
        set_stop(scope, reason, by=None, through=f"the policy “{name}”")
    except AlreadyStopped:
        return False
    return True


def count_left_calls() -> int:
    """Count the refused calls that a process left uncounted when it died; return how many stops were set."""
    left = RefusedCall.objects.filter(is_counted=False).order_by("pk").values_list("pk", flat=True)
    return run_each(count_refused_calls, left[:BATCH])


def clear_refused_calls(*, now: datetime) -> int:
    """Delete rows that are older than the longest window, up to MAX_CLEARED_ROWS; return their number."""
    old = RefusedCall.objects.filter(at__lt=now - timedelta(seconds=MAX_STOP_SECONDS)).order_by("pk")
    keys = list(old.values_list("pk", flat=True)[:MAX_CLEARED_ROWS])
    return RefusedCall.objects.filter(pk__in=keys).delete()[0] if keys else 0
