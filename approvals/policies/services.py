"""Policies as administrators create, change, order and end them. Terms once in force are never overwritten.

A change of terms makes a new revision; requests keep the revision that held them. Each change is an audit entry that
names the changed terms, never the value of a condition. This process sees it at once, others within a second.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from approvals.models import Policy, PolicyRevision
from approvals.policies import gate
from approvals.policies.terms import TERM_COLUMNS, check_name, term_columns
from approvals.policy_language.stages import people_in_words, stages_of
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, can_see_all, has_role
from catalog.core import clock
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, field_error
from catalog.rest.idempotency import record_done
from catalog.signals import record_fact

STEP = 10
"""How far apart the orders of policies are, so that one can be put between two."""
BEFORE_ALL_OTHERS = -1
"""Order of a draft that names none: it would be made before all policies that there are."""
MAX_POLICIES = 1000


def may_change_policy(user: User) -> bool:
    """Say whether someone may change policies: administrators, never through an agent's token."""
    return has_role(user, ADMINISTRATOR) and agent_token_of(user) is None


def policies_for(viewer: User, *, ended: bool = False) -> QuerySet[Policy]:
    """Return the policies, in their order, for who has a role; `ended`: those that were ended instead."""
    seen = Policy.objects.all() if can_see_all(viewer) else Policy.objects.none()
    related = seen.select_related("revision__policy", "revision__created_by")
    return related.filter(ended_at__isnull=not ended).order_by("order", "pk")


def policy_for(viewer: User, public_id: str) -> Policy:
    """Return one policy, ended or not. Raises Policy.DoesNotExist for who has no role."""
    seen = Policy.objects.all() if can_see_all(viewer) else Policy.objects.none()
    return seen.select_related("revision__policy", "revision__created_by").get(public_id=public_id)


def policy_history(policy: Policy) -> list[PolicyRevision]:
    """Return the revisions of a policy, newest first, with who made them."""
    return list(policy.revisions.select_related("policy", "created_by").order_by("-number"))


@retry_on_deadlock
def create_policy(document: Mapping[str, Any], *, by: User) -> Policy:
    """Make a policy; without an order it goes first. Raises NotAllowed, ParameterError, Conflict for one too many."""
    name, columns = check_name(document["name"]), term_columns(document)
    with _changing_policies(by):
        if Policy.objects.filter(ended_at=None).count() >= MAX_POLICIES:
            raise Conflict(f"There are {MAX_POLICIES} policies; end some that no call needs.")
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
    """Change what is named; other terms make a new revision. `revision`, when given, is the one that was read.

    Raises NotAllowed, ParameterError, and Conflict when it was ended or changed meanwhile.
    """
    with _changing_policies(by):
        row = _lock_policy(policy)
        before = row.revision
        if before is None or document.get("revision") not in (None, before.number):
            raise Conflict("Someone has changed this policy meanwhile; look at it again.")
        changes = [*_apply_attributes(row, document), *_revise(row, before, document, by)]
        if changes:
            _save(row)
            _record_policy_change("policy.changed", row, by, changes=changes)
        record_done(row.public_id)
    return row


@retry_on_deadlock
def move_policy(policy: Policy, *, up: bool, by: User) -> bool:
    """Let a policy change places with the one before or after it; say whether there was one. Raises as `change`."""
    with _changing_policies(by):
        _lock_policy(policy)
        rows = list(Policy.objects.select_for_update().filter(ended_at=None).order_by("order", "pk"))
        place = next(number for number, row in enumerate(rows) if row.pk == policy.pk)
        other = place - 1 if up else place + 1
        if not 0 <= other < len(rows):
            return False
        orders = _distinct_orders([row.order for row in rows])
        rows[place], rows[other] = rows[other], rows[place]
        for row, order in zip(rows, orders, strict=True):
            if row.order != order:
                _reorder(row, order, by)
    return True


@retry_on_deadlock
def end_policy(policy: Policy, *, by: User) -> Policy:
    """End a policy: it holds no call any more, and is kept for those it held. Raises NotAllowed, Conflict."""
    with _changing_policies(by):
        row = _lock_policy(policy)
        row.ended_at, row.enabled = clock.now(), False
        _save(row)
        _record_policy_change("policy.ended", row, by)
        record_done(row.public_id)
    return row


@contextmanager
def _changing_policies(by: User) -> Iterator[None]:
    """Change policies in one transaction, for who may; afterwards this process reads the rules again."""
    if not may_change_policy(by):
        raise NotAllowed("Only an administrator may change policies.")
    with transaction.atomic():
        yield
        transaction.on_commit(gate.invalidate_rules)


def _lock_policy(policy: Policy) -> Policy:
    # No join: the revision that someone else made while this waited is seen by a later statement only.
    row = Policy.objects.select_for_update().get(pk=policy.pk)
    if row.ended_at is not None:
        raise Conflict("This policy was ended; make a new one.")
    return row


def _first_order(by: User) -> int:
    """Return an order below that of every policy; only when the lowest is 0, the policies are numbered anew."""
    rows = list(Policy.objects.select_for_update().filter(ended_at=None).order_by("order", "pk"))
    lowest = rows[0].order if rows else 2 * STEP
    if lowest > 0:
        return lowest // 2
    for place, row in enumerate(rows, 2):
        if row.order != STEP * place:
            _reorder(row, STEP * place, by)
    return STEP


def _save(policy: Policy) -> None:
    try:
        with transaction.atomic():
            policy.save()
    except IntegrityError:
        raise field_error("name", "taken", "Another policy has this name; take another.") from None


def _record_policy_change(kind: str, policy: Policy, by: User, **more: Any) -> None:
    number = policy.revision.number if policy.revision else 0
    record_fact(kind, by=by, policy=policy.public_id, name=policy.name, revision=number, **more)


def _distinct_orders(orders: list[int]) -> list[int]:
    """Return orders that differ, in their order: as they are where they do."""
    return orders if len(set(orders)) == len(orders) else [STEP * (place + 1) for place in range(len(orders))]


def _reorder(policy: Policy, order: int, by: User) -> None:
    change = f"order {policy.order} → {order}"
    policy.order = order
    policy.save(update_fields=["order"])
    record_fact("policy.changed", by=by, policy=policy.public_id, name=policy.name, changes=[change])


def _apply_attributes(policy: Policy, document: Mapping[str, Any]) -> Iterator[str]:
    """Set what is no term: the name, the order, whether it counts. Yield what is different."""
    wanted = {name: document[name] for name in ("name", "order", "enabled") if name in document}
    if "name" in wanted:
        wanted["name"] = check_name(wanted["name"])
    for name, value in wanted.items():
        old = getattr(policy, name)
        if old != value:
            setattr(policy, name, value)
            yield (
                {True: "switched on", False: "switched off"}[value] if name == "enabled" else f"{name} {old} → {value}"
            )


def _revise(policy: Policy, before: PolicyRevision, document: Mapping[str, Any], by: User) -> list[str]:
    columns = term_columns(document, before)
    changes = term_differences(before, columns)
    if changes:
        number = before.number + 1
        policy.revision = PolicyRevision.objects.create(policy=policy, number=number, created_by=by, **columns)
    return changes


def term_differences(before: PolicyRevision, columns: Mapping[str, Any]) -> list[str]:
    """Say which terms differ, with what they were and are where that is no secret."""
    changes = ((name, getattr(before, name), columns[name]) for name in TERM_COLUMNS)
    return [_difference(name, old, new) for name, old, new in changes if old != new]


def _difference(name: str, before: Any, after: Any) -> str:
    said = name.replace("_", " ")
    if name in ("message", "notify"):
        return f"{said} changed"
    if name == "stages":
        return f"people {people_in_words(stages_of(before))} → {people_in_words(stages_of(after))}"
    if name == "conditions":
        return f"conditions {_conditions_text(before)} → {_conditions_text(after)}"
    return f"{said} {_term_text(before)} → {_term_text(after)}"


def _conditions_text(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['path']} {row['operator']}" for row in rows) or "none"


def _term_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "by default" if value is None else str(value) or "any"
