"""Who may name an agent in a plan: it must be there for whoever submits it, and the check says what will not work."""

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
    """Return a plan of one step that an agent carries out."""
    return {"goal": "Try it", "steps": [agent_step(name=name, expected_key="told", **fields)]}


def test_members_of_its_groups_may_name_it(ada, rosa, admin):
    """And administrators; others are told that there is none, so that they learn nothing of it."""
    make_agent("ann", groups=["operator"])
    for user, codes in ((ada, []), (admin, []), (rosa, ["agent_unavailable"])):
        assert [each.code for each in check_document(document(), by=Requester(user))] == codes
    assert [each.code for each in check_document(document())] == []


def test_one_that_is_switched_off_is_known_and_not_usable(ada):
    """The check warns; what is offered does not name it."""
    make_agent("ann", enabled=False)
    assert list(named_agents(ada)) == ["ann"]
    assert usable_by(ada) == {}
    assert [(each.code, each.severity) for each in check_document(document(), by=Requester(ada))] == [
        ("agent_disabled", "warning")
    ]


def test_a_model_of_its_own_is_enough(settings, ada):
    """Without one, and without TOOLGATE_MODEL, the check says which setting to fill."""
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


def test_over_rest_it_is_judged_for_whoever_asks(ada):
    """Checked and created alike, with the nearest name."""
    make_agent("researcher")
    make_agent("secretary", groups=["administrator"])
    rest = Rest(ada)
    checked = rest.post("plans/check/", document("reseacher")).json()
    assert (checked["valid"], checked["problems"][0]["suggestion"]) == (False, "Did you mean researcher?")
    refused = rest.post("plans/", document("secretary") | {"start": False})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["steps.0.agent"])
    stored = rest.post("plans/", document("researcher") | {"start": False})
    assert (stored.status_code, stored.json()["steps"][0]["agent"]) == (201, "researcher")


def test_a_plan_with_a_strange_agent_is_not_stored(ada):
    """Neither by the shell nor by code."""
    with pytest.raises(PlanProblems):
        make_plan(ada, agent_step(name="nobody"))
    assert not Plan.objects.exists()


def test_secrets_in_what_it_is_given_are_kept_apart(ada):
    """As those of tools are: what is stored holds their names."""
    make_agent("ann")
    make_plan(ada, agent_step(parameters={"note": f"The key is {SECRET}."}), start=False)
    stored = Step.objects.get().parameters
    assert SECRET not in stored
    assert "$secret" in stored
