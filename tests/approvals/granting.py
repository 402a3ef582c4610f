"""Grants for the stage's dangerous tool, in the fewest words."""

from typing import Any

from django.contrib.auth.models import User

from approvals.grants.services import Terms, make, standing_of
from approvals.models import ApprovalRequest, Grant
from catalog.inventory import snapshot
from catalog.inventory.overrides import change_tool
from plans.models import Plan
from tests.builders import act, approve, make_plan, request_of, work_off

ANY = [{"path": "value", "operator": "exists"}]


def let_be_granted(admin: User, settings: Any, monkeypatch: Any) -> None:
    """Let the dangerous tool be granted; policies and tools are read anew each time."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    monkeypatch.setattr(snapshot, "SECONDS_TRUSTED", 0.0)
    allow(admin, max_hours=8, max_uses=20)


def allow(admin: User, **limits: int) -> None:
    """Let grants be made for the dangerous tool."""
    change_tool("dangerous", {"grantable": limits or None}, by=admin)


def grant(by: User, ref: str = "ada", scope: str = "requester", rows: object = None, **more: Any) -> Grant:
    """Make a grant for the dangerous tool."""
    terms = Terms(tool="dangerous", rows=ANY if rows is None else rows, scope=scope, scope_ref=ref, **more)
    return make(terms, by=by)


def dangerous(value: object = "x") -> dict[str, Any]:
    """Return the document of a dangerous step."""
    return act(1, value, "dangerous")


def run(ada: User, value: object = "x") -> Plan:
    """Let a plan of one dangerous step go as far as it goes."""
    return work_off(make_plan(ada, dangerous(value)))


def standing(made: Grant) -> str:
    """Return where a grant stands now: active, used_up, expired, revoked by a person, or ended by what happened."""
    made.refresh_from_db()
    return standing_of(made).word


def ended(made: Grant) -> str:
    """Return why a grant has ended; empty while it is in force."""
    made.refresh_from_db()
    return "" if standing_of(made).is_active else standing_of(made).sentence


def approved(ada: User, rosa: User) -> ApprovalRequest:
    """A request that Rosa approved, and whose call ran."""
    plan = run(ada)
    approve(plan, rosa)
    work_off(plan)
    return request_of(plan)


def terms_from(request: ApprovalRequest, scope: str = "requester", ref: str = "ada") -> Terms:
    """Return terms about the dangerous tool."""
    return Terms(tool="dangerous", rows=ANY, scope=scope, scope_ref=ref)
