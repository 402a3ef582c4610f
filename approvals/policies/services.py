"""Services to create, change, order and delete policies. Stored terms are never overwritten.

A change of terms creates a new revision; requests keep the revision that held them. Each change is an audit entry that
names the changed terms, but not the values of conditions. It applies in this process at once, in others within 1 s.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from approvals.models import Policy, PolicyRevision
from approvals.policies import gate
from approvals.policies.term_checks import check_name, term_columns
from approvals.policy_language.history import read_recent, read_seen, recent_in_words, seen_in_words
from approvals.policy_language.stages import people_in_words, stages_of
from approvals.policy_language.terms import TERM_COLUMNS
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, can_see_all, has_role
from catalog.core import clock
from catalog.core.locks import LockSpace, lock_until_commit
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, field_error
from catalog.rest.idempotency import record_done
from catalog.signals import record_fact

STEP = 10
"""Gap between order numbers, so that a policy can be inserted between two others."""
BEFORE_ALL_OTHERS = -1
"""Order of a draft without an order number: a new policy comes first."""
MAX_POLICIES = 1000


def may_change_policy(user: User) -> bool:
    """Return True if the user may change policies: administrators, but not through agent tokens."""
    return has_role(user, ADMINISTRATOR) and agent_token_of(user) is None


def require_policy_changes(user: User) -> None:
    """Raise NotAllowed if the user may not change policies."""
    if not may_change_policy(user):
        raise NotAllowed("Only administrators may change policies.")


def policies_for(viewer: User, *, ended: bool = False) -> QuerySet[Policy]:
    """Return the policies in order, or the deleted ones if `ended`. Users without a role get none."""
    seen = Policy.objects.all() if can_see_all(viewer) else Policy.objects.none()
    related = seen.select_related("revision__policy", "revision__created_by")
    return related.filter(ended_at__isnull=not ended).order_by("order", "pk")


def policy_for(viewer: User, public_id: str) -> Policy:
    """Return one policy, deleted or not. Raises Policy.DoesNotExist, also for users without a role."""
    seen = Policy.objects.all() if can_see_all(viewer) else Policy.objects.none()
    return seen.select_related("revision__policy", "revision__created_by").get(public_id=public_id)


def policy_history(policy: Policy) -> list[PolicyRevision]:
    """Return the revisions of a policy with their authors, newest first."""
    return list(policy.revisions.select_related("policy", "created_by").order_by("-number"))


@retry_on_deadlock
def create_policy(document: Mapping[str, Any], *, by: User) -> Policy:
    """Create a policy, by default the first. Raises NotAllowed, ParameterError, and Conflict at MAX_POLICIES."""
    with changing_policies(by):
        name, columns = check_name(document["name"]), term_columns(document)
        if Policy.objects.filter(ended_at=None).count() >= MAX_POLICIES:
            raise Conflict(f"There are already {MAX_POLICIES} policies, the maximum. Delete some first.")
        order = document.get("order")
        policy = Policy(name=name, order=_first_order(by) if order is None else order)
        policy.enabled = document.get("enabled", True)
        _save(policy)
        policy.revision = PolicyRevision.objects.create(policy=policy, number=1, created_by=by, **columns)
        policy.save(update_fields=["revision"])
        _record_policy_change("policy.created", policy, by)
        record_done(policy.public_id)
    return policy


@retry_on_deadlock
def change_policy(policy: Policy, document: Mapping[str, Any], *, by: User) -> Policy:
    """Change the given attributes and terms; changed terms create a new revision.

    Raises NotAllowed, ParameterError, and Conflict if the policy was deleted or is not at the given `revision`.
    """
    with changing_policies(by):
        row = _lock_policy(policy)
        before = row.revision
        if before is None or document.get("revision") not in (None, before.number):
            raise Conflict("Someone else has changed this policy. Reload it and try again.")
        changes = []
        attributes = {name: document[name] for name in ("name", "order", "enabled") if name in document}
        if "name" in attributes:
            attributes["name"] = check_name(attributes["name"])
        for name, value in attributes.items():
            old = getattr(row, name)
            if old != value:
                setattr(row, name, value)
                switched = "switched on" if value else "switched off"
                changes.append(switched if name == "enabled" else f"{name} {old} → {value}")
        columns = term_columns(document, before)
        if differences := term_differences(before, columns):
            number = before.number + 1
            row.revision = PolicyRevision.objects.create(policy=row, number=number, created_by=by, **columns)
            changes += differences
        if changes:
            _save(row)
            _record_policy_change("policy.changed", row, by, changes=changes)
        record_done(row.public_id)
    return row


@retry_on_deadlock
def move_policy(policy: Policy, *, up: bool, by: User) -> bool:
    """Swap a policy with its neighbour; return False if there is none. Raises NotAllowed and Conflict."""
    with changing_policies(by):
        _lock_policy(policy)
        rows = list(Policy.objects.select_for_update().filter(ended_at=None).order_by("order", "pk"))
        place = [row.pk for row in rows].index(policy.pk)
        other = place - 1 if up else place + 1
        if not 0 <= other < len(rows):
            return False
        orders = [row.order for row in rows]
        if len(set(orders)) < len(orders):
            orders = [STEP * (place + 1) for place in range(len(orders))]
        rows[place], rows[other] = rows[other], rows[place]
        for row, order in zip(rows, orders, strict=True):
            if row.order != order:
                _reorder(row, order, by)
    return True


@retry_on_deadlock
def end_policy(policy: Policy, *, by: User) -> Policy:
    """Delete a policy; its row is kept for the requests it held. Raises NotAllowed and Conflict."""
    with changing_policies(by):
        row = _lock_policy(policy)
        row.ended_at, row.enabled = clock.now(), False
        _save(row)
        _record_policy_change("policy.ended", row, by)
        record_done(row.public_id)
    return row


@contextmanager
def changing_policies(by: User) -> Iterator[None]:
    """Check that `by` may change policies, run the `with` block in a transaction, then discard the cached rules.

    The transaction holds the lock of changes of people: a group that a policy names is not deleted between the check of
    the policy's terms and the commit.
    """
    require_policy_changes(by)
    with transaction.atomic():
        lock_until_commit(LockSpace.PEOPLE, "")
        yield
        transaction.on_commit(gate.invalidate_rules)


def _lock_policy(policy: Policy) -> Policy:
    # No join: a revision committed while this waited for the lock is only visible to a later statement.
    row = Policy.objects.select_for_update().get(pk=policy.pk)
    if row.ended_at is not None:
        raise Conflict("This policy was deleted. Create a new one.")
    return row


def _first_order(by: User) -> int:
    """Return an order number below those of all policies; renumbers the policies if the lowest number is 0."""
    rows = list(Policy.objects.select_for_update().filter(ended_at=None).order_by("order", "pk"))
    lowest = rows[0].order if rows else 2 * STEP
    if lowest > 0:
        return lowest // 2
    for place, row in enumerate(rows, 2):
        if row.order != STEP * place:
            _reorder(row, STEP * place, by)
    return STEP


def order_before(policy: Policy | None, by: User) -> int:
    """Return an order number for new policies right before this one, or after all; renumbers them if there is no gap.

    Call it inside of `changing_policies`.
    """
    rows = list(Policy.objects.select_for_update().filter(ended_at=None).order_by("order", "pk"))
    if policy is None:
        return rows[-1].order + STEP if rows else STEP
    place = [row.pk for row in rows].index(policy.pk)
    least = rows[place - 1].order if place else 0
    if rows[place].order > least:  # of equal numbers the older policy comes first
        return rows[place].order - 1
    for number, row in enumerate(rows, 1):
        if row.order != STEP * number:
            _reorder(row, STEP * number, by)
    return STEP * (place + 1) - 1


def _save(policy: Policy) -> None:
    try:
        with transaction.atomic():
            policy.save()
    except IntegrityError:
        raise field_error("name", "taken", "Another policy has this name. Choose a different one.") from None


def _record_policy_change(kind: str, policy: Policy, by: User, **more: Any) -> None:
    number = policy.revision.number if policy.revision else 0
    record_fact(kind, by=by, policy=policy.public_id, name=policy.name, revision=number, **more)


def _reorder(policy: Policy, order: int, by: User) -> None:
    change = f"order {policy.order} → {order}"
    policy.order = order
    policy.save(update_fields=["order"])
    record_fact("policy.changed", by=by, policy=policy.public_id, name=policy.name, changes=[change])


def term_differences(revision: PolicyRevision, columns: Mapping[str, Any]) -> list[str]:
    """Return a description of each changed term, with old and new values unless they may be confidential."""
    changes = []
    for name in TERM_COLUMNS:
        old, new, label = getattr(revision, name), columns[name], name.replace("_", " ")
        if old == new:
            continue
        if name in ("message", "notify"):
            changes.append(f"{label} changed")
        elif name == "stages":
            changes.append(f"people {people_in_words(stages_of(old))} → {people_in_words(stages_of(new))}")
        elif name == "conditions":
            changes.append(f"conditions {_conditions_text(old)} → {_conditions_text(new)}")
        elif name == "stop_after":
            changes.append(f"{label} {_term_text(old or 'none')} → {_term_text(new or 'none')}")
        elif name == "recent":
            changes.append(f"{label} {_recent_text(old)} → {_recent_text(new)}")
        elif name == "seen":
            changes.append(f"{label} {_seen_text(old)} → {_seen_text(new)}")
        else:
            changes.append(f"{label} {_term_text(old)} → {_term_text(new)}")
    return changes


def _recent_text(document: Mapping[str, Any] | None) -> str:
    recent = read_recent(document)
    return "any" if recent is None else recent_in_words(recent)


def _seen_text(document: Mapping[str, Any] | None) -> str:
    seen = read_seen(document)
    return "any" if seen is None else seen_in_words(seen)


def _conditions_text(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['path']} {row['operator']}" for row in rows) or "none"


def _term_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):  # the term `stop_after`
        return f"{value['count']} calls in {value['seconds']} s"
    return "by default" if value is None else str(value) or "any"
