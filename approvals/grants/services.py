"""Services for grants (remembered approvals): permission to create one, its limits, and its end.

A grant is one person's approval of similar calls of one tool. It is bound to the tool's definition and code at its
creation and to the epoch. It ends by expiry, by its number of uses, by revocation, or automatically: when a covered
call is rejected or denied by a policy, or the tool changes. Lock order: audit head before grant.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet

from approvals.errors import GrantRefused
from approvals.models import ApprovalRequest, Grant, Instance
from approvals.policies.eligibility import may_decide
from approvals.policy_language.bounds import check_bounds
from approvals.states import RequestStatus, ReviewVerdict
from catalog.access.roles import (
    ADMINISTRATOR,
    REVIEWER,
    NotAllowed,
    agent_token_of,
    can_see_all,
    has_role,
    user_display_name,
)
from catalog.calls.privacy import can_see_private
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, digest, format_utc
from catalog.core.transactions import retry_on_deadlock
from catalog.definitions.grant_limits import NEVER_GRANTED, grant_limits_for
from catalog.errors import Conflict
from catalog.models import Tool
from catalog.rest.idempotency import record_done
from catalog.signals import record_fact

PEOPLE_DECIDE = "cannot be granted: people decide on each of its calls."
MAKERS_RULE = (
    "Only administrators may create grants, and reviewers from a request that they approved: set created_from to that "
    "request."
)
Scope = Grant.Scope
RefT = TypeVar("RefT")
GRANTABLE_STATUSES = (RequestStatus.APPROVED, RequestStatus.CONSUMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantTerms:
    """Terms of a new grant. None for `expires_at` and `max_uses` means the tool's limits."""

    tool: str
    rows: object
    scope: str
    scope_ref: str
    expires_at: datetime | None = None
    max_uses: int | None = None


def create_grant(
    terms: GrantTerms, *, by: User, source_request: ApprovalRequest | None = None, as_administrator: bool | None = None
) -> Grant:
    """Create a grant. `as_administrator` is False if `by` uses a token without the administrator's right.

    Raises NotAllowed, and GrantRefused (a ParameterError) with the field.
    """
    if agent_token_of(by) is not None:
        raise NotAllowed(f"Agent tokens cannot create grants. {MAKERS_RULE}")
    if source_request is not None and source_request.tool_version.tool.name != terms.tool:
        raise GrantRefused("created_from", "This request is about another tool.")
    if not (has_role(by, ADMINISTRATOR) if as_administrator is None else as_administrator):
        why_not = MAKERS_RULE if source_request is None else source_objection(source_request, by)
        if why_not is not None:
            raise NotAllowed(why_not)
        if source_request is not None and terms.scope_ref != available_scopes(source_request).get(terms.scope):
            raise NotAllowed(
                "Reviewers can only create grants for the plan, session or requester of the request they approved."
            )
    rows = check_bounds(terms.rows)
    if terms.scope not in Scope.values:
        raise GrantRefused("scope", f"This must be one of {', '.join(Scope.values)}.")
    if not terms.scope_ref.strip() or len(terms.scope_ref) > 150:
        raise GrantRefused("scope_ref", "This must be a plan's id, a session, or a username.")
    if terms.scope == Scope.REQUESTER and terms.scope_ref == by.get_username():
        raise NotAllowed("You cannot create a grant for your own calls. Someone else must do it.")
    if terms.scope == Scope.SESSION and (source_request is None or source_request.call.session != terms.scope_ref):
        message = (
            "Session names are not unique to a user. Create the grant from a request in the session (created_from)."
        )
        raise GrantRefused("scope", message)
    return _store(terms, rows, by, source_request)


@retry_on_deadlock
def _store(terms: GrantTerms, rows: list[dict[str, Any]], by: User, source_request: ApprovalRequest | None) -> Grant:
    with transaction.atomic():
        tools = Tool.objects.select_related("current_version").filter(current_version__isnull=False)
        tool, now = tools.filter(name=terms.tool).first(), clock.now()
        if tool is None:
            raise GrantRefused("tool", "There is no tool with this name.")
        limits = tool.grant_limits
        if tool.name in NEVER_GRANTED:
            raise GrantRefused("tool", f"{tool.name} {PEOPLE_DECIDE}")
        if limits is None:
            remedy = "An administrator can allow that on the tool's page."
            raise GrantRefused("tool", f"{tool.name} is dangerous and cannot be granted. {remedy}")
        instance = _lock_instance()
        latest = now + limits.longest
        if terms.expires_at is not None and not now < terms.expires_at <= latest + timedelta(minutes=1):
            message = f"This must be in the future, and at most {limits.max_hours} h away, the limit of {terms.tool}."
            raise GrantRefused("expires_at", message)
        if terms.max_uses is not None and not 1 <= terms.max_uses <= limits.max_uses:
            raise GrantRefused("max_uses", f"This must be 1 to {limits.max_uses}, the limit of {terms.tool}.")
        # The covered user's key is kept too, since usernames can be reassigned.
        requester_id = None
        if terms.scope == Scope.SESSION:
            requester_id = source_request.call.requested_by_id if source_request else None
        elif terms.scope == Scope.REQUESTER:
            requester_id = User.objects.filter(username=terms.scope_ref).values_list("pk", flat=True).first()
            if requester_id is None:
                raise GrantRefused("scope_ref", "There is no user with this name.")
        grant = Grant.objects.create(
            tool=tool,
            fingerprint=tool.current_version.fingerprint if tool.current_version else "",
            implementation_digests=digests_in_use(tool),
            conditions=rows,
            scope=terms.scope,
            scope_ref=terms.scope_ref,
            epoch=instance.epoch,
            created_by=by,
            created_from=source_request,
            created_at=now,
            expires_at=terms.expires_at or latest,
            max_uses=limits.max_uses if terms.max_uses is None else terms.max_uses,
            requester_id=requester_id,
        )
        source: dict[str, Any] = {"approval": source_request.public_id} if source_request else {}
        record_fact(
            "grant.created",
            by=by,
            grant=grant.public_id,
            tool_name=tool.name,
            scope=grant.scope,
            scope_ref=grant.scope_ref,
            conditions=digest("grant-conditions-v1", canonical_text(rows)),  # as a digest, since they contain arguments
            expires_at=format_utc(grant.expires_at),
            max_uses=grant.max_uses,
            **source,
        )
        record_done(grant.public_id)
    return grant


def _lock_instance() -> Instance:
    """Lock and return this installation's row (the audit head). It must be locked before any grant."""
    return Instance.objects.select_for_update().get(pk=1)


def digests_in_use(tool: Tool) -> list[str]:
    """Return the digests of the tool's enabled implementations."""
    in_use = tool.implementations.filter(enabled=True, registered=True)
    return sorted(set(in_use.values_list("digest", flat=True)))


def may_create_from(request: ApprovalRequest, by: User) -> str | None:
    """Return None if the user may create a grant from this decided request, otherwise the reason."""
    if agent_token_of(by) is not None:
        return f"Agent tokens cannot create grants. {MAKERS_RULE}"
    tool = request.tool_version.tool
    if tool.name in NEVER_GRANTED:
        return f"{tool.name} {PEOPLE_DECIDE}"
    if grant_limits_for(tool.name, tool.grantable, request.tool_version.safety_level) is None:
        return f"{tool.name} cannot be granted. An administrator can allow that on the tool's page."
    if request.status not in GRANTABLE_STATUSES:
        return "Grants can only be created from approved requests."
    if request.policy_revision.fresh_passkey:
        return "Its policy requires a signature with a passkey for each approval, which a grant cannot give."
    return None if has_role(by, ADMINISTRATOR) else source_objection(request, by)


def source_objection(request: ApprovalRequest, by: User) -> str | None:
    """Return the reason why a reviewer may not create a grant from this request; None if they may."""
    approvals = (each for each in request.reviews.all() if each.verdict == ReviewVerdict.APPROVE)
    approvers = {each.person_id for each in approvals if each.undone_at is None}
    if request.status not in GRANTABLE_STATUSES or by.pk not in approvers:
        return MAKERS_RULE
    if request.policy_revision.quorum > 1:
        return f"The policy requires several approvals, so this cannot be granted. {request.policy_revision.sentence}"
    return may_decide(request, by)


def available_scopes(request: ApprovalRequest) -> dict[str, str]:
    """Return the scopes that a grant from this request can have (plan, session, requester), each with its reference."""
    call = request.call
    who = call.requested_by.get_username() if call.requested_by else ""
    return {scope: ref for scope, ref in scope_mapping(call.plan_ref, call.session, who).items() if ref}


def scope_mapping(plan: RefT, session: RefT, requester: RefT) -> dict[str, RefT]:
    return {str(Scope.PLAN): plan, str(Scope.SESSION): session, str(Scope.REQUESTER): requester}


def in_force(now: datetime) -> Q:
    """Return the condition for grants that can be used now."""
    return Q(revoked_at=None, expires_at__gt=now, uses__lt=F("max_uses"))


def still_usable(now: datetime) -> Q:
    """Return the condition for grants that can be revoked.

    Includes grants without uses left: the last call can return to the queue before its handler began, and start again.
    """
    return Q(revoked_at=None, expires_at__gt=now)


def grants_for(viewer: User, *, tool: str = "", active: bool | None = None) -> QuerySet[Grant]:
    """Return the grants the viewer may see. This needs a role, and for private data the right to see them."""
    if not can_see_all(viewer):
        return Grant.objects.none()
    grants = Grant.objects.select_related("tool__current_version", "created_by", "created_from", "revoked_by")
    if not can_see_private(viewer):
        related = ("created_from__call__requesters", "created_from__delegations")
        grants = grants.filter(tool__returns_private_data=False).prefetch_related(*related)
    if tool:
        grants = grants.filter(tool__name=tool)
    now = clock.now()
    return grants if active is None else grants.filter(in_force(now)) if active else grants.exclude(in_force(now))


def may_revoke_grant(user: User) -> bool:
    """Return True if the user may revoke grants: any reviewer or administrator, never an agent."""
    return agent_token_of(user) is None and has_role(user, REVIEWER, ADMINISTRATOR)


@retry_on_deadlock
def revoke_grant(grant: Grant, *, by: User) -> Grant:
    """Revoke a grant. Raises NotAllowed, and Conflict if it has ended already."""
    if not may_revoke_grant(by) and grant.created_by_id != by.pk:
        raise NotAllowed("Only reviewers and administrators may revoke grants.")
    with transaction.atomic():
        _lock_instance()
        if not _close(grant, f"Revoked by {user_display_name(by)}.", by):
            grant.refresh_from_db()
            raise Conflict(f"This grant has already ended. {grant_status(grant).sentence}")
        record_done(grant.public_id)
    grant.refresh_from_db()
    return grant


@retry_on_deadlock
def end_grants(grants: Iterable[Grant], because: str, *, by: User | None = None) -> int:
    """End these grants for the reason `because`; return the number of grants that were active."""
    with transaction.atomic():
        _lock_instance()
        return sum(_close(grant, because, by) for grant in grants)


def _close(grant: Grant, because: str, by: User | None) -> bool:
    now = clock.now()
    going = Grant.objects.filter(still_usable(now), pk=grant.pk)
    if not going.update(revoked_at=now, revoked_by=by, ended_because=because):
        return False
    record_fact("grant.revoked", by=by, grant=grant.public_id, reason=because)
    return True


@dataclass(frozen=True, slots=True)
class GrantStatus:
    """Status of a grant as a code and a sentence; `may_be_ended` is True if it can be revoked."""

    word: str
    sentence: str
    may_be_ended: bool = False

    @property
    def is_active(self) -> bool:
        return self.word == "active"


def grant_status(grant: Grant) -> GrantStatus:
    if grant.revoked_at is not None:
        return GrantStatus("revoked" if grant.revoked_by_id else "ended", grant.ended_because or "It was revoked.")
    if grant.uses >= grant.max_uses:
        return GrantStatus("used_up", "All its uses are consumed.", may_be_ended=grant.expires_at > clock.now())
    if grant.expires_at <= clock.now():
        return GrantStatus("expired", "It has expired.")
    return GrantStatus("active", "It is active.", may_be_ended=True)


def matching_scope(refs: Mapping[str, object]) -> Q:
    """Return the condition for grants with any of these scopes; it matches nothing if `refs` is empty."""
    found = Q(pk__in=[])
    for scope, ref in refs.items():
        if isinstance(ref, QuerySet) or ref:
            found |= Q(scope=scope, scope_ref=ref)
    return found
