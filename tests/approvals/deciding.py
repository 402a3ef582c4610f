"""Answers to what a plan's step waits for, in the fewest words: over REST, so that they take effect at once."""

import re
from typing import Any

from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import Verdict
from plans.models import Plan
from tests.builders import request_of
from tests.pages import Pages


def answer(plan: Plan, by: User, verdict: Verdict, step_id: int = 1, **more: Any) -> ApprovalRequest:
    """Let someone answer what a step waits for, as it is now."""
    request = request_of(plan, step_id)
    return decide(request, by=by, decision=Decision(verdict, request.digest, **more))


def edit(plan: Plan, by: User, value: Any, **more: Any) -> ApprovalRequest:
    """Let someone approve what a step waits for with another value."""
    return answer(plan, by, Verdict.APPROVE, arguments={"value": value}, **more)


def respond(plan: Plan, by: User, response: Any, **more: Any) -> ApprovalRequest:
    """Let someone answer in the tool's place."""
    return answer(plan, by, Verdict.RESPOND, response=response, **more)


def send_back(plan: Plan, by: User, comment: str = "Smaller, please.", **more: Any) -> ApprovalRequest:
    """Let someone ask for changes."""
    return answer(plan, by, Verdict.REQUEST_CHANGES, comment=comment, **more)


def reject(plan: Plan, by: User, effect: str = "fail", comment: str = "Not today.", **more: Any) -> ApprovalRequest:
    """Let someone reject what a step waits for."""
    return answer(plan, by, Verdict.REJECT, comment=comment, effect=effect, **more)


def setback_on(pages: Pages) -> str:
    """Return why the page that is open says an answer was not recorded: the kind of setback, or the wrong field."""
    found = re.findall(r'data-setback="(\w+)"', pages.html)
    assert len(found) <= 1, found
    return found[0] if found else ""
