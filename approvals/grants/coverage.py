"""Use of grants: a call that would wait for approval starts at once if an active grant covers it; uses are counted.

Called inside the transaction that starts the call. A grant covers a call if its scope and conditions match, the tool
still has the definition and code of the grant, and an approval by the grant's creator would be enough now. Calls that
replace an earlier call are never covered, because that call was reviewed or its outcome is unknown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet

from approvals.audit.restore_guard import ensure_start_allowed
from approvals.grants.services import (
    available_scopes,
    digests_in_use,
    end_grants,
    in_force,
    matching_scope,
    scope_mapping,
)
from approvals.models import Grant, GrantUse, Instance
from approvals.policies.quorum import is_satisfied
from approvals.policies.rulebook import Rule
from approvals.policy_language.bounds import conditions_cover
from approvals.states import ReviewVerdict
from catalog.access.roles import ADMINISTRATOR, has_role, user_display_name
from catalog.core import clock
from catalog.dispatch.arguments import CallArguments, stored_arguments, validator_of
from catalog.inventory.snapshot import CallableTool
from catalog.models import Call
from catalog.signals import Fact, record_fact

TOOL_CHANGED = "The definition or the code of {tool} has changed since the grant was created."
CALL_REJECTED = "{who} rejected a call that it would have covered."
APPROVAL_REVOKED = "{who} revoked the approval of a call that it would have covered."
CALL_DENIED = "A policy blocks a call that it would have covered."
GRANTS_DISABLED = "{tool} can no longer be granted."


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantCandidate:
    """A call about to start; `arguments` have secrets cut out.

    `requesters` are the users who shaped the arguments; `barred` are the requesters and the authors of the call's
    input. Unless the rule allows self-review, grants created by a user in `barred` do not cover the call.
    `token` is the key of the token through which the call is made.
    """

    target: CallableTool
    arguments: CallArguments
    plan_ref: str
    session: str
    requested_by: int
    requesters: frozenset[int]
    barred: frozenset[int]
    replaces_call: bool = False
    token: int | None = None


def tools_with_grants(person: User) -> set[int]:
    """Return the keys of tools of which a grant lets some calls of this person start, in whatever session."""
    scopes = Q(scope=Grant.Scope.REQUESTER, scope_ref=person.get_username()) | Q(scope=Grant.Scope.SESSION)
    grants = Grant.objects.filter(in_force(clock.now()), scopes, requester=person, created_by__is_active=True)
    return {grant.tool_id for grant in grants.select_related("tool__current_version") if grant.tool.grant_limits}


def find_covering(candidate: GrantCandidate, rule: Rule, grants: Sequence[Grant] | None = None) -> Grant | None:
    """Return a grant that covers the call now, or None. Never writes; no query if the tool cannot be granted.

    `grants` are the results of `grants_in_scope`, if these were read for several calls at once.
    """
    matching = _matching_grants(candidate, rule, clock.now(), grants)
    bound = (grant for grant in matching if _is_bound_to(grant, candidate.target))
    return next((grant for grant in bound if _permits(grant, candidate, rule)), None)


def grants_in_scope(plan_ref: str, session: str, requested_by: int, now: datetime) -> QuerySet[Grant]:
    """Return the active grants, of all tools, whose scope includes the calls of this plan, session and requester."""
    names = User.objects.filter(pk=requested_by).values("username")[:1]
    grants = Grant.objects.filter(in_force(now), matching_scope(scope_mapping(plan_ref, session, names)))
    return grants.select_related("created_by", "created_from").order_by("pk")


def consume_use(candidate: GrantCandidate, rule: Rule, *, now: datetime) -> Grant | None:
    """Count one use of a grant that covers the call and return the grant; None if no grant covers the call.

    The call must start in this transaction, whose time is `now`. Raises RestoredDatabase and AuditUnavailable. Only one
    of several concurrent calls gets the last use: the count is one conditional UPDATE after locking the audit head. A
    grant whose tool seems changed is ended only if the database confirms it: this process may know an older version.
    """
    for grant in _matching_grants(candidate, rule, now):
        if not _is_bound_to(grant, candidate.target):
            _end_if_changed(grant)
        elif _permits(grant, candidate, rule):
            usable = Grant.objects.filter(in_force(now), pk=grant.pk, epoch=lock_epoch())
            if usable.filter(fingerprint=candidate.target.fingerprint).update(uses=F("uses") + 1):
                return grant
    return None


def is_still_valid(call: Call, candidate: GrantCandidate, rule: Rule, *, now: datetime) -> bool:
    """Return True if the grant that was used for this call still allows it to start, even without uses left.

    Raises RestoredDatabase and AuditUnavailable. The audit head is locked, so the grant cannot be revoked meanwhile.
    """
    used = Grant.objects.filter(used__call=call, epoch=lock_epoch(), revoked_at=None, expires_at__gt=now)
    grant = used.select_related("created_by").first()
    if grant is None or rule.quorum != 1 or rule.fresh_passkey:
        return False
    return _is_bound_to(grant, candidate.target) and _permits(grant, candidate, rule)


def lock_epoch() -> int:
    """Lock the audit head and return the current epoch. Raises RestoredDatabase and AuditUnavailable."""
    ensure_start_allowed()
    epoch: int = Instance.objects.select_for_update().values_list("epoch", flat=True).get(pk=1)
    return epoch


def record_grant_use(grant: Grant, call: Call, *, now: datetime) -> None:
    """Record that the call used the grant, with an audit entry and an event, in the caller's transaction."""
    # The grant may be newer than `now`: created while this transaction waited for the requester's lock, or by a process
    # whose clock is ahead.
    GrantUse.objects.create(grant=grant, call=call, at=max(now, grant.created_at))
    details: dict[str, Any] = {"grant": grant.public_id, "made_by": user_display_name(grant.created_by)}
    if grant.created_from is not None:
        details["made_from"] = grant.created_from.public_id
    record_fact("grant.used", call=call, **details)


def end_denied_grants(candidate: GrantCandidate) -> int:
    """End the grants that would cover this call, because a policy denied it; return their number."""
    if candidate.target.grant_limits is None:
        return 0
    found = _covering(_in_scope(candidate, clock.now()), candidate.arguments)
    return end_grants(found, CALL_DENIED) if found else 0


def _matching_grants(
    candidate: GrantCandidate, rule: Rule, now: datetime, grants: Sequence[Grant] | None = None
) -> list[Grant]:
    """Return active grants whose scope and conditions match, without checking the tool's version and the creator."""
    if candidate.target.grant_limits is None or candidate.replaces_call or rule.quorum != 1 or rule.fresh_passkey:
        return []
    if grants is None:
        return _covering(_in_scope(candidate, now), candidate.arguments)
    return _covering((grant for grant in grants if grant.tool_id == candidate.target.tool_pk), candidate.arguments)


def _covering(grants: Iterable[Grant], arguments: CallArguments) -> list[Grant]:
    return [grant for grant in grants if conditions_cover(grant.conditions, arguments)]


def _permits(grant: Grant, candidate: GrantCandidate, rule: Rule) -> bool:
    """Return True if one approval by the grant's creator is enough, and only the grant's user requested the call."""
    maker, requesters = grant.created_by, candidate.requesters | {candidate.requested_by}
    if grant.scope != Grant.Scope.PLAN and requesters != {grant.requester_id}:
        return False
    if not maker.is_active or (maker.pk in candidate.barred and not rule.allow_self_review):
        return False
    return is_satisfied(rule, [maker]) or has_role(maker, ADMINISTRATOR)


def _in_scope(candidate: GrantCandidate, now: datetime) -> QuerySet[Grant]:
    """Return the tool's active grants whose scope includes the call, with one query on an index."""
    grants = grants_in_scope(candidate.plan_ref, candidate.session, candidate.requested_by, now)
    return grants.filter(tool=candidate.target.tool_pk)


def _is_bound_to(grant: Grant, tool: CallableTool) -> bool:
    return grant.fingerprint == tool.fingerprint and tool.implementation_digest in grant.implementation_digests


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """End grants when a call that they cover is rejected or its approval revoked, or when their tool changes."""
    rejected = fact.kind == "approval.decided" and fact.data.get("verdict") == ReviewVerdict.REJECT
    if fact.call is not None and (rejected or fact.kind == "approval.revoked"):
        who = user_display_name(fact.by) if fact.by else "Someone"
        request = fact.call.approval  # loaded by the code that decided it
        scopes, version = available_scopes(request), request.tool_version
        grants = Grant.objects.filter(in_force(clock.now()), tool=version.tool_id).order_by("pk")
        in_scope = [grant for grant in grants if scopes.get(grant.scope) == grant.scope_ref]
        if in_scope:
            validator = validator_of(version.input_schema)
            arguments = stored_arguments(validator, fact.call.arguments_json, fact.call.defaults)
            if found := _covering(in_scope, arguments):
                end_grants(found, (CALL_REJECTED if rejected else APPROVAL_REVOKED).format(who=who))
    elif fact.kind.startswith("tool."):
        name = str(fact.data.get("tool", ""))
        going = Grant.objects.filter(in_force(clock.now()), tool__name=name).select_related("tool__current_version")
        for grant in going.order_by("pk"):
            if grant.tool.grant_limits is None:
                end_grants([grant], GRANTS_DISABLED.format(tool=name))
            else:
                _end_if_changed(grant)


def _end_if_changed(grant: Grant) -> None:
    """End a grant if the tool's version or code in the database is no longer that of the grant's creation."""
    version = grant.tool.current_version
    is_same_version = version is not None and version.fingerprint == grant.fingerprint
    if not is_same_version or set(grant.implementation_digests).isdisjoint(digests_in_use(grant.tool)):
        end_grants([grant], TOOL_CHANGED.format(tool=grant.tool.name))
