"""Pages of grants: the list, and the form with proposal and history."""

import pytest

from approvals.grants.proposals import propose_grant
from approvals.grants.services import grant_status
from approvals.models import Grant
from catalog.inventory.overrides import apply_overrides
from catalog.models import Tool
from tests.builders import act, approve, call_of, make_plan, reject, request_of, work_off
from tests.pages import Pages


@pytest.fixture(autouse=True)
def grantable(stage, admin, settings, read_anew):
    """Allow grants of the dangerous tool."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    apply_overrides("dangerous", {"grantable": {}}, by=admin)


def asked(ada, value):
    """Return a plan that waits for approval."""
    return work_off_of(make_plan(ada, act(1, value, "dangerous")))


def work_off_of(plan):
    """Run a plan until it waits or ends."""
    work_off(plan)
    return plan


def approved(ada, rosa, *values):
    """Approve one call per value as Rosa; return the last request."""
    for value in values:
        plan = asked(ada, value)
        approve(plan, rosa)
        work_off(plan)
    return request_of(plan)


def mail(to, text="Hello", count=1):
    """Return a value with parts."""
    return {"to": to, "text": text, "count": count}


def rows_of(proposal):
    """Return the rows that are proposed, by path."""
    return {part.path: part.row and (part.row["operator"], part.row.get("value")) for part in proposal.parts}


def test_common_values_are_proposed(ada, rosa):
    paths = ("reports/2026/a.txt", "reports/2026/b.txt", "reports/2026/cd/e.txt")
    request = approved(ada, rosa, *({"path": path, "text": path[-5:], "mode": "w"} for path in paths))
    found = propose_grant(request, rosa)
    assert rows_of(found) == {
        "value.mode": ("equals", "w"),
        "value.path": ("starts_with", "reports/2026/"),
        "value.text": None,
    }
    assert (found.alike, found.scope, found.hours, found.uses) == (3, "plan", 8, 20)


def test_other_shapes_and_requesters_are_ignored(ada, ben, rosa):
    approved(ben, rosa, mail("z@example.org"))
    approved(ada, rosa, {"to": "a@example.com"})
    reject(asked(ada, mail("bad@example.com")), rosa)
    found = propose_grant(approved(ada, rosa, mail("a@example.com")), rosa)
    assert (found.alike, rows_of(found)["value.to"]) == (1, ("equals", "a@example.com"))


FORM = {
    "argument-0-operator": "starts_with",
    "argument-0-value": "reports/",
    "scope": "requester",
    "hours": "2",
    "uses": "3",
}
MAKE = FORM | {"do": "make"}


def at(request):
    """Return the URL of the page that creates a grant from a request."""
    return f"/approvals/{request.public_id}/grant/"


def remembering(user, request):
    """Return the client of a user who has opened that page."""
    pages = Pages(user)
    pages.open(at(request))
    return pages


def test_history_shows_covered_calls(ada, rosa):
    reject(asked(ada, "reports/secret"), rosa)
    request = approved(ada, rosa, "reports/a", "reports/b")
    pages = remembering(rosa, request)
    pages.send(at(request), FORM | {"do": "check"})
    tested = pages.context["tested"]
    assert (tested.covered, tested.calls, tested.rejected) == (3, 3, 1)
    assert "text-danger" in pages.html
    assert not Grant.objects.exists()


def test_grant_is_created_and_revoked_on_pages(ada, rosa):
    request = approved(ada, rosa, "reports/a", "reports/b")
    pages = Pages(rosa)
    pages.open(f"/approvals/?status=decided&item={request.public_id}")
    assert f'href="{at(request)}"' in pages.html
    pages.open(at(request))
    pages.send(at(request), MAKE)
    [grant] = Grant.objects.all()
    assert (grant.created_from, grant.max_uses, grant.scope_ref) == (request, 3, "ada")
    plan = asked(ada, "reports/c")
    plan_pages = Pages(ada)
    plan_pages.open(f"/plans/{plan.public_id}/?step=1")
    assert f'href="/approvals/grants/?grant={grant.public_id}"' in plan_pages.html
    assert grant.public_id in Pages(ada).open(f"/plans/{plan.public_id}/?of=1")
    pages.open("/approvals/grants/")
    assert f'id="{grant.public_id}"' in pages.html and f'href="/plans/{plan.public_id}/?step=1"' in pages.html
    revoke = f"/approvals/grants/{grant.public_id}/revoke/"
    levels = []
    for _ in range(2):
        pages.send(revoke)
        levels += [each.level_tag for each in pages.context["messages"]]
        assert grant_status(Grant.objects.get()).word == "revoked" and revoke not in pages.html
    assert levels == ["success", "warning"]
    assert request_of(asked(ada, "reports/d")).status == "pending"


def test_prefix_does_not_cover_parent_segments(ada, rosa):
    request = approved(ada, rosa, "reports/a", "reports/b")
    remembering(rosa, request).send(at(request), MAKE)
    assert call_of(asked(ada, "reports/c")).status == "completed"
    assert request_of(asked(ada, "reports/../secrets")).status == "pending"


def test_problems_are_shown_at_their_fields(ada, rosa):
    request = approved(ada, rosa, "a")
    pages = remembering(rosa, request)
    wrong: list[tuple[dict[str, str], str]] = [
        ({"argument-0-operator": ""}, "argument-0-operator"),
        ({"argument-0-operator": "like"}, "argument-0-operator"),
        ({"argument-0-operator": "matches", "argument-0-value": "(?=x)"}, "argument-0-value"),
        ({"hours": "9"}, "hours"),
        ({"hours": "x"}, "hours"),
        ({"uses": "0"}, "uses"),
    ]
    for change, field in wrong:
        pages.send(at(request), MAKE | change, status=422)
        form = pages.context["form"]
        assert [*form.errors, *(row.add_prefix(name) for row in form.rows for name in row.errors)] == [field], change
        assert pages.html.count('class="error"') == 1
        assert {name: form[name].value() for name in ("hours", "uses")}.items() <= (MAKE | change).items()
    pages.send(at(request), MAKE | {"scope": "session"}, status=422)
    assert not Grant.objects.exists()


def test_only_the_approver_is_offered_a_grant(ada, rosa, tomas, admin):
    request = approved(ada, rosa, "a")
    for someone, status in ((rosa, 200), (admin, 200), (tomas, 403), (ada, 403)):
        Pages(someone).open(at(request), status)
    for someone, held in ((tomas, request), (rosa, request_of(asked(ada, "b")))):
        pages = Pages(someone)
        pages.open(f"/approvals/?item={held.public_id}")
        assert f'href="{at(held)}"' not in pages.html


def test_tool_page_sets_grant_limits(admin):
    pages = Pages(admin)
    pages.open("/tools/dangerous/")
    form = {"what": "grantable", "max_hours": "4", "max_uses": "7"}
    pages.send("/tools/dangerous/change/", form)
    assert Tool.objects.get(name="dangerous").grantable == {"max_hours": 4, "max_uses": 7}
    pages.send("/tools/dangerous/change/", form | {"max_hours": "0"}, status=422)
    assert Tool.objects.get(name="dangerous").grantable == {"max_hours": 4, "max_uses": 7}
    pages.send("/tools/dangerous/change/", form | {"do": "none"})
    assert Tool.objects.get(name="dangerous").grantable is None
