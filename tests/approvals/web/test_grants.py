"""The pages of grants: the list with its press, and “Remember this” with what was alike and what history says."""

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
    """The dangerous tool may be granted."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    apply_overrides("dangerous", {"grantable": {}}, by=admin)


def asked(ada, value):
    """Return a plan that waits for people."""
    return work_off_of(make_plan(ada, act(1, value, "dangerous")))


def work_off_of(plan):
    """Let a plan go as far as it goes."""
    work_off(plan)
    return plan


def approved(ada, rosa, *values):
    """Let Rosa approve a call with each of the values; return the last request."""
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


def test_what_was_alike_is_proposed(ada, rosa):
    """The same stays the same, a common folder is a beginning, and what varied else is to be chosen."""
    paths = ("reports/2026/a.txt", "reports/2026/b.txt", "reports/2026/cd/e.txt")
    request = approved(ada, rosa, *({"path": path, "text": path[-5:], "mode": "w"} for path in paths))
    found = propose_grant(request, rosa)
    assert rows_of(found) == {
        "value.mode": ("equals", "w"),
        "value.path": ("starts_with", "reports/2026/"),
        "value.text": None,
    }
    assert (found.alike, found.scope, found.hours, found.uses) == (3, "plan", 8, 20)


def test_other_shapes_and_other_people_do_not_count(ada, ben, rosa):
    """Only calls with the same names, of the same requester or plan, and only approved ones."""
    approved(ben, rosa, mail("z@example.org"))
    approved(ada, rosa, {"to": "a@example.com"})
    reject(asked(ada, mail("bad@example.com")), rosa)
    found = propose_grant(approved(ada, rosa, mail("a@example.com")), rosa)
    assert (found.alike, rows_of(found)["value.to"]) == (1, ("equals", "a@example.com"))


FORM = {"operator-0": "starts_with", "value-0": "reports/", "scope": "requester", "hours": "2", "uses": "3"}
MAKE = FORM | {"do": "make"}


def at(request):
    """Return the address of the page that makes a grant out of a request."""
    return f"/approvals/{request.public_id}/grant/"


def remembering(user, request):
    """Return the pages of someone who has that page open."""
    pages = Pages(user)
    pages.open(at(request))
    return pages


def test_history_says_what_it_would_have_covered(ada, rosa):
    """And what of that people rejected."""
    reject(asked(ada, "reports/secret"), rosa)
    request = approved(ada, rosa, "reports/a", "reports/b")
    pages = remembering(rosa, request)
    pages.send(at(request), FORM | {"do": "check"})
    tested = pages.context["form"].tested
    assert (tested.covered, tested.calls, tested.rejected) == (3, 3, 1)
    assert 'class="note danger" role="status"' in pages.html
    assert not Grant.objects.exists()


def test_a_grant_is_made_from_its_page_and_revoked_in_the_list(ada, rosa):
    """Two presses; calls like it run in between, and the plan's page says by what."""
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
    assert grant.public_id in Pages(ada).open(f"/plans/{plan.public_id}/")
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


def test_a_beginning_is_not_left_by_climbing(ada, rosa):
    """reports/../secrets begins alike and is elsewhere."""
    request = approved(ada, rosa, "reports/a", "reports/b")
    remembering(rosa, request).send(at(request), MAKE)
    assert call_of(asked(ada, "reports/c")).status == "completed"
    assert request_of(asked(ada, "reports/../secrets")).status == "pending"


def test_problems_stand_at_their_fields(ada, rosa):
    """Nothing is made, and what was entered stays."""
    request = approved(ada, rosa, "a")
    pages = remembering(rosa, request)
    wrong: list[tuple[dict[str, str], str]] = [
        ({"operator-0": ""}, "operator-0"),
        ({"operator-0": "like"}, "operator-0"),
        ({"operator-0": "matches", "value-0": "(?=x)"}, "operator-0"),
        ({"hours": "9"}, "hours"),
        ({"hours": "x"}, "hours"),
        ({"uses": "0"}, "uses"),
    ]
    for change, field in wrong:
        pages.send(at(request), MAKE | change, status=422)
        form = pages.context["form"]
        assert [*form.problems, *(f"operator-{row.number}" for row in form.rows if row.problem)] == [field], change
        assert pages.html.count('class="err"') == 1
        assert (form.hours, form.uses) == ((MAKE | change)["hours"], (MAKE | change)["uses"])
    pages.send(at(request), MAKE | {"scope": "session"}, status=403)
    assert not Grant.objects.exists()


def test_only_who_approved_it_is_offered_it(ada, rosa, tomas, admin):
    """Nor is it offered of a request that waits."""
    request = approved(ada, rosa, "a")
    for someone, status in ((rosa, 200), (admin, 200), (tomas, 403), (ada, 403)):
        Pages(someone).open(at(request), status)
    for someone, held in ((tomas, request), (rosa, request_of(asked(ada, "b")))):
        pages = Pages(someone)
        pages.open(f"/approvals/?item={held.public_id}")
        assert f'href="{at(held)}"' not in pages.html


def test_the_page_of_the_tool_sets_how_far_grants_go(admin):
    """Within bounds; it can be taken back."""
    pages = Pages(admin)
    pages.open("/tools/dangerous/")
    form = {"what": "grantable", "max_hours": "4", "max_uses": "7"}
    pages.send("/tools/dangerous/change/", form)
    assert Tool.objects.get(name="dangerous").grantable == {"max_hours": 4, "max_uses": 7}
    pages.send("/tools/dangerous/change/", form | {"max_hours": "0"}, status=422)
    assert Tool.objects.get(name="dangerous").grantable == {"max_hours": 4, "max_uses": 7}
    pages.send("/tools/dangerous/change/", form | {"do": "none"})
    assert Tool.objects.get(name="dangerous").grantable is None
