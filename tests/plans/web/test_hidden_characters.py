"""Test that pages spell out hidden characters in texts from outside."""

import re

import pytest

from approvals.models import ApprovalRequest
from approvals.reviews import coordination
from catalog.text.deceptive_text import is_hidden
from plans.actions import slices
from plans.models import Plan
from tests.builders import act, make_plan, reject, request_of, work_off
from tests.pages import Pages

HIDES = "<b>a\u202eb\u200bc</b>"
# A field must hold exactly the characters that are there.
FIELDS = re.compile(r'<textarea.*?</textarea>|\svalue="[^"]*"', re.DOTALL)


@pytest.fixture
def plan(stage, ada, rosa, tomas) -> Plan:
    """A waiting plan with hidden characters in every text; a similar one was rejected."""

    def steps():
        first = act(1, HIDES, "dangerous", expected_key="kept") | {"description": HIDES}
        return first, act(2, {HIDES: HIDES}, "dangerous", dependencies=[1]) | {"description": HIDES}

    old = work_off(make_plan(ada, *steps(), goal=HIDES))
    reject(old, tomas)
    work_off(old)
    plan = work_off(make_plan(ada, *steps(), goal=HIDES))
    slices.prepare_slice(plan, 1, by=rosa)
    coordination.comment(request_of(plan), by=tomas, text=HIDES)
    type(request_of(plan).call).objects.update(reason=HIDES)
    return plan


def pages_about(plan: Plan) -> list[str]:
    """Return the URLs of pages that show this plan."""
    request, early = request_of(plan), request_of(plan, 2)
    rejected = ApprovalRequest.objects.get(status="rejected")
    item = f"/approvals/?item={request.public_id}"
    own = f"/plans/{plan.public_id}/"
    below = ("", "?step=1&tab=input", "?step=2&tab=input", "?view=tool", "slice/")
    return [
        *(f"{own}{more}" for more in below),
        *(f"{item}{more}" for more in ("", "&view=json", "&view=edit", "&view=respond")),
        f"/approvals/?status=decided&item={rejected.public_id}",
        f"/approvals/several/?item={request.public_id}&item={early.public_id}",
        f"/approvals/{rejected.public_id}/grant/",
        *("/approvals/insights/", "/approvals/grants/", "/plans/", "/ask/", "/sessions/", "/agents/", "/tools/"),
        *("/tools/dangerous/", "/tools/dangerous/versions/", "/policies/", "/policies/simulator/"),
        *("/audit/", "/audit/?open=5", "/audit/deliveries/", "/profile/notifications/"),
    ]


def hidden_in(markup: str) -> list[str]:
    """Return the hidden characters in a page outside of fields."""
    plain = FIELDS.sub("", markup)
    found = re.finditer(r"[^ -~\n]", plain)
    return [plain[max(0, each.start() - 80) : each.end() + 20] for each in found if is_hidden(each[0])]


@pytest.mark.parametrize("who", ["rosa", *(pytest.param(who, marks=pytest.mark.nightly) for who in ("ada", "admin"))])
def test_no_page_contains_hidden_characters(plan, who, request):
    browser = Pages(request.getfixturevalue(who))
    found, opened = {}, 0
    for path in pages_about(plan):
        answer = browser.client.get(path)
        assert answer.status_code in (200, 403, 404), (path, answer.status_code)
        opened += answer.status_code == 200
        markup = answer.content.decode()
        if wrong := hidden_in(markup) or ["markup"] * ("<b>a" in markup):
            found[path] = wrong[:3]
    assert found == {}
    assert opened >= 18
