"""Tests of access to agents in submitted plans."""

import pytest

from plans.actions.create import PlanProblems, check_document
from plans.agents.definitions import named_agents, usable_by
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.builders import make_plan
from tests.plans.agents.scripted import agent_step, make_agent
from tests.rest import Rest, wrong_paths

pytestmark = pytest.mark.usefixtures("catalog")
SECRET = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"


@pytest.fixture(autouse=True)
def model(settings) -> None:
    """A model that nobody asks."""
    settings.TOOLGATE_MODEL = "openai:scripted"


def document(name: str = "ann", **fields):
    """Return a plan with one agent's step."""
    return {"goal": "Try it", "steps": [agent_step(name=name, expected_key="told", **fields)]}


def test_group_members_may_use_agent(ada, rosa, admin):
    """Others learn only that there is no such agent."""
    make_agent("ann", groups=["operator"])
    for user, codes in ((ada, []), (admin, []), (rosa, ["agent_unavailable"])):
        assert [each.code for each in check_document(document(), by=Requester(user))] == codes
    assert [each.code for each in check_document(document())] == []


def test_disabled_agent_is_warned_about(ada):
    make_agent("ann", enabled=False)
    assert list(named_agents(ada)) == ["ann"]
    assert usable_by(ada) == {}
    assert [(each.code, each.severity) for each in check_document(document(), by=Requester(ada))] == [
        ("agent_disabled", "warning")
    ]


def test_agent_needs_a_model(settings, ada):
    settings.TOOLGATE_MODEL = ""
    make_agent("own", model="openai:gpt-5")
    make_agent("ann")
    assert check_document(document("own"), by=Requester(ada)) == []
    (problem,) = check_document(document("ann"), by=Requester(ada))
    assert (problem.code, problem.severity, "TOOLGATE_MODEL" in str(problem.suggestion)) == (
        "no_model",
        "warning",
        True,
    )


def test_agent_is_checked_for_requester_over_rest(ada):
    make_agent("researcher")
    make_agent("secretary", groups=["administrator"])
    rest = Rest(ada)
    checked = rest.post("plans/check/", document("reseacher")).json()
    assert (checked["valid"], checked["problems"][0]["suggestion"]) == (False, "Did you mean researcher?")
    refused = rest.post("plans/", document("secretary") | {"start": False})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["steps.0.agent"])
    stored = rest.post("plans/", document("researcher") | {"start": False})
    assert (stored.status_code, stored.json()["steps"][0]["agent"]) == (201, "researcher")


def test_plan_with_unknown_agent_is_not_stored(ada):
    with pytest.raises(PlanProblems):
        make_plan(ada, agent_step(name="nobody"))
    assert not Plan.objects.exists()


def test_secrets_in_input_are_replaced_by_placeholders(ada):
    make_agent("ann")
    make_plan(ada, agent_step(parameters={"note": f"The key is {SECRET}."}), start=False)
    stored = Step.objects.get().parameters
    assert SECRET not in stored
    assert "$secret" in stored
