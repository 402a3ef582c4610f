"""Policies, open requests and settings that name a group: while there are any, the group is not deleted.

A policy names groups as reviewers, as those it escalates to, and as requesters. Policies, requests and the audit log
know groups by name, so groups are not renamed either. Policies change under the lock of changes of people.
"""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from approvals.models import ApprovalRequest, Policy, PolicyRevision
from approvals.policy_language.terms import GROUP
from approvals.states import RequestStatus
from catalog.errors import Conflict
from catalog.signals import Fact

DELETING = "group.deleting"
MOST_NAMED = 3


def groups_named_by(revision: PolicyRevision) -> set[str]:
    """Return the groups that the terms of a policy name."""
    named = {*revision.groups, revision.escalate_to}
    if revision.requester.startswith(GROUP):
        named.add(revision.requester.removeprefix(GROUP))
    return named - {""}


def policies_naming_groups() -> dict[str, list[Policy]]:
    """Return the policies that name each group, in their order, disabled ones included. One query."""
    found: dict[str, list[Policy]] = {}
    for policy in Policy.objects.filter(ended_at=None, revision__isnull=False).select_related("revision"):
        for name in sorted(groups_named_by(policy.revision)) if policy.revision else ():
            found.setdefault(name, []).append(policy)
    return found


def open_requests_of_group(name: str) -> Iterator[ApprovalRequest]:
    """Yield the requests that members of the group may have to decide: those held by a revision that names it."""
    pending: QuerySet[ApprovalRequest] = ApprovalRequest.objects.filter(status=RequestStatus.PENDING)
    for request in pending.select_related("policy_revision"):
        if name in groups_named_by(request.policy_revision) or request.escalated_to == name:
            yield request


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Refuse to delete a group that is named. Raises Conflict."""
    if fact.kind != DELETING:
        return
    name = str(fact.data["group"])
    if policies := policies_naming_groups().get(name):
        names = ", ".join(f"“{policy.name}”" for policy in policies[:MOST_NAMED])
        more = f" and {len(policies) - MOST_NAMED} more" if len(policies) > MOST_NAMED else ""
        raise Conflict(f"Policies name {name}: {names}{more}. Change or delete them first.")
    if name in settings.TOOLGATE_SSO_GROUPS.values():
        raise Conflict(f"TOOLGATE_SSO_GROUPS maps to {name}. Take it out of this setting first.")
    if any(open_requests_of_group(name)):
        raise Conflict(f"Open requests wait for {name}. They must be decided or withdrawn first.")
