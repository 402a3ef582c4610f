"""Tests of the policies that decide on the questions of coding agents."""

import pytest
from django.contrib.auth.models import User

from approvals.policies import shipped
from approvals.policies.backtest import back_test, draft_of, rulebooks_for
from approvals.policies.services import create_policy
from approvals.policies.simulator import simulate
from approvals.policies.term_checks import term_columns
from approvals.requests.queries import current_round
from tests.plans.coding_agents.conftest import CodingAgent, answer_request, request_for

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("tool", "sent", "decision"),
    [
        ("Bash", {"command": "ls src"}, "allow"),
        ("Edit", {"file_path": "/srv/project/a", "old_string": "x", "new_string": "y"}, "allow"),
        ("Bash", {"command": "ls ../other"}, "wait"),
        ("Bash", {"command": "npm test"}, "wait"),
        ("Task", {"prompt": "x"}, "wait"),
    ],
)
def test_the_set_decides_by_what_a_call_does(agent: CodingAgent, admin: User, tool: str, sent: object, decision: str):
    shipped.add_coding_agent_policies(by=admin)

    assert agent.ask(tool, input=sent).decision == decision


def test_a_policy_refuses_what_any_part_of_a_command_does(agent: CodingAgent, admin: User):
    row = {"path": "command.effects", "operator": "equals", "value": "pushes"}
    create_policy({"name": "No pushes", "effect": "deny", "match": {"arguments": [row]}}, by=admin)

    assert agent.ask(input={"command": "ls && git push"}).decision == "deny"


def test_an_approved_command_is_handed_out(agent: CodingAgent, admin: User, rosa: User):
    shipped.add_coding_agent_policies(by=admin)
    held = agent.ask(input={"command": "rm -r build"})
    preview = current_round(request_for(held)).preview_json
    assert preview is not None and [row["Part"] for row in preview["rows"]] == ["rm -r build"]

    answer_request(held, rosa)

    assert agent.ask(input={"command": "rm -r build"}).decision == "allow"


def test_the_simulator_and_the_past_tell_the_same(agent: CodingAgent, admin: User):
    agent.ask(input={"command": "ls ../x; git push"})
    simulated = simulate("Bash", {"command": "ls ../x; git push"}, cwd="/srv/project")
    row = {"path": "path", "operator": "equals", "value": "/srv/x"}
    draft = draft_of(term_columns({"effect": "deny", "match": {"arguments": [row]}}), name="New", order=-1)

    assert simulated.derived is not None
    assert simulated.derived.effects == ("reads", "sends", "pushes", "outside", "unknown")
    assert back_test(rulebooks_for(draft), days=1).counts == {"deny": 1}
