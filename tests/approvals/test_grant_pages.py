"""The pages of grants: the list with its press, and “Remember this” with what was alike and what history says."""

import pytest

from approvals.models import Grant
from approvals.proposals import propose
from catalog.changes import change_tool
from tests.builders import act, approve, call_of, make_plan, reject, request_of, work_off
from tests.pages import Pages


@pytest.fixture(autouse=True)
def grantable(stage, admin, settings, read_anew):
    """The dangerous tool may be granted."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    change_tool("dangerous", {"grantable": {}}, by=admin)


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
    found = propose(request, rosa)
    assert rows_of(found) == {
        "value.mode": ("equals", "w"),
        "value.path": ("starts_with", "reports/2026/"),
        "value.text": None,
    }
    assert found.sentence == (
        "You approved 3 calls like this; only value.path (under reports/2026/) and value.text varied."
    )
    assert (found.scope, found.hours, found.uses) == ("plan", 8, 20)


def test_other_shapes_and_other_people_do_not_count(ada, ben, rosa):
    """Only calls with the same names, of the same requester or plan, and only approved ones."""
    approved(ben, rosa, mail("z@example.org"))
    approved(ada, rosa, {"to": "a@example.com"})
    reject(asked(ada, mail("bad@example.com")), rosa)
    found = propose(approved(ada, rosa, mail("a@example.com")), rosa)
    assert (found.alike, rows_of(found)["value.to"]) == (1, ("equals", "a@example.com"))
    assert "only call like this" in found.sentence


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
    said = remembering(rosa, request).send(at(request), FORM | {"do": "check"})
    assert "it would have covered 3 of 3 calls, of which people rejected 1" in said
    assert not Grant.objects.exists()


def test_a_grant_is_made_from_its_page_and_revoked_in_the_list(ada, rosa):
    """Two presses; calls like it run in between, and the plan's page says by what."""
    request = approved(ada, rosa, "reports/a", "reports/b")
    pages = Pages(rosa)
    assert "Remember this…" in pages.open(f"/approvals/?status=decided&item={request.public_id}")
    pages.open(at(request))
    assert "Remembered." in pages.send(at(request), MAKE)
    [grant] = Grant.objects.all()
    assert (grant.created_from, grant.max_uses, grant.scope_ref) == (request, 3, "ada")
    plan = asked(ada, "reports/c")
    assert "made by Rosa from" in Pages(ada).open(f"/plans/{plan.public_id}/?step=1")
    assert "runs by a grant of Rosa" in Pages(ada).open(f"/plans/{plan.public_id}/")
    assert "1 of 3 uses" in pages.open("/approvals/grants/")
    assert f'href="/plans/{plan.public_id}/?step=1"' in pages.html
    assert "Revoked by Rosa." in pages.send(f"/approvals/grants/{grant.public_id}/revoke/")
    assert "has ended already" in pages.send(f"/approvals/grants/{grant.public_id}/revoke/")
    assert request_of(asked(ada, "reports/d")).status == "pending"


def test_a_beginning_is_not_left_by_climbing(ada, rosa):
    """reports/../secrets begins alike and is elsewhere."""
    request = approved(ada, rosa, "reports/a", "reports/b")
    remembering(rosa, request).send(at(request), MAKE)
    assert call_of(asked(ada, "reports/c")).status == "completed"
    assert request_of(asked(ada, "reports/../secrets")).status == "pending"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"operator-0": ""}, "Choose what this may be."),
        ({"operator-0": "like"}, "Choose what this may be."),
        ({"hours": "9"}, "at most 8 h"),
        ({"hours": "x"}, "a whole number"),
        ({"uses": "0"}, "1 to 20"),
        ({"scope": "session"}, "within the plan, the session or the requester"),
        ({"operator-0": "matches", "value-0": "(?=x)"}, "linear-time"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(ada, rosa, change, said):
    """Nothing is made, and what was entered stays."""
    request = approved(ada, rosa, "a")
    pages = remembering(rosa, request)
    status = 403 if "scope" in change else 422
    assert said in pages.send(at(request), MAKE | change, status=status)
    assert not Grant.objects.exists()


def test_only_who_approved_it_is_offered_it(ada, rosa, tomas, admin):
    """Others are told who may; a request that waits offers nothing."""
    request = approved(ada, rosa, "a")
    for someone, status in ((rosa, 200), (admin, 200), (tomas, 403), (ada, 403)):
        Pages(someone).open(at(request), status)
    assert "Remember this" not in Pages(tomas).open(f"/approvals/?item={request.public_id}")
    assert "Remember this" not in Pages(rosa).open(f"/approvals/?item={request_of(asked(ada, 'b')).public_id}")


def test_the_page_of_the_tool_sets_how_far_grants_go(admin):
    """With what is wrong at its field; it can be taken back."""
    pages = Pages(admin)
    pages.open("/tools/dangerous/")
    form = {"what": "grantable", "max_hours": "4", "max_uses": "7"}
    assert "up to 4 h and 7 uses" in pages.send("/tools/dangerous/change/", form)
    assert "1 to 720" in pages.send("/tools/dangerous/change/", form | {"max_hours": "0"}, status=422)
    assert "no approval of it may be remembered" in pages.send("/tools/dangerous/change/", form | {"do": "none"})
