"""A coding agent with its token, in one session, and what reviewers do about its calls."""

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.access.tokens import create_token
from catalog.inventory import snapshot
from catalog.models import ApiToken, Call, ClientRun
from plans.coding_agents.permissions import PermissionAnswer, PermissionQuestion, ask
from plans.coding_agents.reports import ReportedRun, ReportOutcome, RunReport, report_run
from plans.store.requesters import Requester

COMMAND = {"command": "rm -r build"}


@dataclass
class CodingAgent:
    """A client that asks before it runs its tools."""

    user: User
    token: ApiToken
    session: str = "s1"
    client: str = "claude-code"

    @property
    def by(self) -> Requester:
        return Requester(self.user, self.token, via="rest", session=self.session)

    def question(self, tool: str = "Bash", call_id: str = "toolu_1", **more: Any) -> PermissionQuestion:
        given = {"input": COMMAND, "cwd": "/srv/project", **more}
        return PermissionQuestion(self.client, self.session, tool, call_id=call_id, **given)

    def ask(self, tool: str = "Bash", call_id: str = "toolu_1", **more: Any) -> PermissionAnswer:
        return ask(self.question(tool, call_id, **more), by=self.by)

    def report(self, call_id: str = "toolu_1", *, succeeded: bool = True, **more: Any) -> ReportOutcome:
        tool, ran = more.pop("tool", "Bash"), more.pop("input", None if call_id else COMMAND)
        run = ReportedRun(self.client, self.session, tool, call_id, input=ran)
        return report_run(run, RunReport(succeeded, **more), by=self.by)


@pytest.fixture
def agent(stage: object, ada: User) -> CodingAgent:
    """The coding agent of ada, in a catalog with the tools of tests."""
    snapshot.drop_snapshot()
    token, _ = create_token(user=ada, kind=ApiToken.Kind.AGENT, scopes=["permissions:ask"])
    return CodingAgent(ada, token)


def request_for(answer: PermissionAnswer) -> ApprovalRequest:
    """Return the request that an answer names."""
    return ApprovalRequest.objects.get(public_id=answer.approval)


def answer_request(answer: PermissionAnswer, by: User, verdict: str = "approve", **more: Any) -> None:
    """Let a reviewer answer the request that an answer names, over REST, so that it takes effect at once."""
    request = request_for(answer)
    decide(request, by=by, decision=Decision(ReviewVerdict(verdict), request.digest, **more))


def run_of(answer: PermissionAnswer) -> ClientRun:
    """Return the row of the call that an answer names, with its call."""
    return ClientRun.objects.select_related("call").get(call__public_id=answer.call)


def call_of(answer: PermissionAnswer) -> Call:
    return Call.objects.get(public_id=answer.call)
