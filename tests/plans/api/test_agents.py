"""The agent paths: made, read, changed and ended by administrators; read by everyone with a role."""

from typing import Any

import pytest
from django.contrib.auth.models import Group

from approvals.models import AuditEntry
from plans.models import Agent, AgentRun
from tests.builders import make_plan, step
from tests.conftest import person
from tests.plans.agents.scripted import make_agent
from tests.rest import Rest, agent, wrong_paths

pytestmark = pytest.mark.usefixtures("catalog")
BODY = {
    "name": "researcher",
    "instructions": "Find it out, and say where you found it.",
    "model": "openai:gpt-5",
    "tools": {"names": ["render_text"], "categories": [], "max_level": "cautious"},
    "strategy": "plan_act_reflect",
    "budget": {"rounds": 5, "calls": 20, "tokens": 50_000, "cost": 0.25, "seconds": 600},
    "groups": ["operator"],
    "enabled": True,
}


@pytest.fixture
def rest(admin) -> Rest:
    """An administrator's client."""
    return Rest(admin)


def kept() -> list[tuple[str, str, Any]]:
    """Return what the audit log says of agents: what was done, to which, and what changed."""
    entries = AuditEntry.objects.filter(action__startswith="agent.").order_by("seq")
    return [(entry.action, entry.object_ref, entry.details_json.get("changes")) for entry in entries]


def make_run(of: Agent, author: Any) -> AgentRun:
    """Store that the agent began a step."""
    plan = make_plan(author, step(1), start=False)
    return AgentRun.objects.create(step=plan.steps.get(), agent=of, settings="{}", started_at=plan.created_at)


def test_an_agent_is_made_and_read_as_it_was_sent(rest):
    """With what is known beside it; the same key makes it once."""
    first = rest.post("agents/", BODY, key="once")
    assert first.status_code == 201, first.content
    assert rest.post("agents/", BODY, key="once").json()["name"] == "researcher"
    shown = rest.get("agents/researcher/").json()
    assert {name: shown[name] for name in BODY} == BODY
    assert (shown["runs"], shown["may_use"]) == (0, True)
    assert kept() == [("agent.created", "researcher", None)]


def test_what_is_left_out_is_by_default(rest):
    """Ten rounds, all tools that whoever uses it may call, everyone."""
    shown = rest.post("agents/", {"name": "ann", "instructions": "Help."}).json()
    assert (shown["budget"]["rounds"], shown["budget"]["cost"], shown["strategy"]) == (10, None, "react")
    assert shown["tools"] == {"names": [], "categories": [], "max_level": "dangerous"}
    assert (shown["groups"], shown["model"], shown["enabled"]) == ([], "", True)


MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "No Spaces"}, "name", "lower-case"),
    ({"name": "new"}, "name", "new"),
    ({"instructions": " "}, "instructions", "blank"),
    ({"instructions": "x" * 20_001}, "instructions", "20000"),
    ({"instructions": "Use sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc."}, "instructions", "secret"),
    ({"model": "gpt-5"}, "model", "provider:model"),
    ({"strategy": "guess"}, "strategy", "react"),
    ({"budget": {"rounds": 101}}, "budget.rounds", "100"),
    ({"budget": {"rounds": "5"}}, "budget.rounds", "integer"),
    ({"budget": {"cost": 0.1234567}}, "budget.cost", "decimal"),
    ({"budget": {"round": 5}}, "budget.round", "rounds"),
    ({"tools": {"names": ["render_txt"]}}, "tools.names.0", "render_text"),
    ({"tools": {"names": ["agent_turn"]}}, "tools.names.0", "tool"),
    ({"tools": {"categories": ["fils"]}}, "tools.categories.0", "fils"),
    ({"tools": {"max_level": "any"}}, "tools.max_level", "safe"),
    ({"groups": ["operators"]}, "groups.0", "operator"),
    ({"colour": "red"}, "colour", ""),
    ({"instruction": "x"}, "instruction", "instructions"),
]


def test_every_mistake_is_named_with_its_place(rest):
    """And nothing is stored."""
    faults = {}
    for wrong, path, said in MISTAKES:
        answer = rest.post("agents/", BODY | wrong)
        told = answer.json()["errors"][0]["message"] if answer.status_code == 422 else ""
        if said not in told or wrong_paths(answer) != [path]:
            faults[str(wrong)] = answer.content
    assert faults == {}
    assert not Agent.objects.exists()


def test_a_name_is_given_once(rest):
    """Also to an agent that is switched off."""
    make_agent("researcher", enabled=False)
    answer = rest.post("agents/", BODY)
    assert (answer.status_code, wrong_paths(answer)) == (422, ["name"])


def test_a_change_leaves_the_rest(rest):
    """Within tools and budget too; the log says what differs, never the instructions."""
    rest.post("agents/", BODY)
    change = {"budget": {"rounds": 7}, "enabled": False, "instructions": "Be brief."}
    shown = rest.patch("agents/researcher/", change).json()
    assert (shown["budget"]["rounds"], shown["budget"]["calls"], shown["enabled"]) == (7, 20, False)
    assert shown["tools"] == BODY["tools"]
    assert shown["may_use"] is False
    _, _, changes = kept()[1]
    assert changes[0] == "instructions changed"
    assert "switched off" in changes
    assert "Be brief" not in str(changes)


def test_a_change_of_nothing_leaves_no_trace(rest):
    """One that names nothing is refused; one that names what is there already is no entry."""
    rest.post("agents/", BODY)
    assert rest.patch("agents/researcher/", {}).status_code == 422
    assert rest.patch("agents/researcher/", {"name": "other"}).status_code == 422
    assert rest.patch("agents/researcher/", {"enabled": True}).status_code == 200
    assert [action for action, _, _ in kept()] == ["agent.created"]


def test_what_it_names_already_may_be_gone(rest):
    """A tool that left the catalog, or a group, keeps nobody from changing the rest."""
    Group.objects.create(name="night")
    rest.post("agents/", BODY | {"groups": ["night"]})
    Group.objects.filter(name="night").delete()
    assert rest.patch("agents/researcher/", {"groups": ["night"], "enabled": False}).status_code == 200


def test_one_that_never_began_a_step_is_gone_when_it_is_ended(rest):
    """Its name is free again."""
    rest.post("agents/", BODY)
    assert rest.delete("agents/researcher/").json()["enabled"] is False
    assert rest.get("agents/researcher/").status_code == 404
    assert rest.post("agents/", BODY).status_code == 201
    assert [action for action, _, _ in kept()] == ["agent.created", "agent.ended", "agent.created"]


def test_one_that_was_used_keeps_its_name_when_it_is_ended(rest, ada):
    """It is switched off, its runs stay, and it may be switched on again."""
    rest.post("agents/", BODY)
    make_run(Agent.objects.get(), ada)
    rest.delete("agents/researcher/")
    shown = rest.get("agents/researcher/").json()
    assert (shown["enabled"], shown["runs"]) == (False, 1)
    assert rest.patch("agents/researcher/", {"enabled": True}).json()["may_use"] is True


@pytest.mark.parametrize("who", ["ada", "rosa", "vera"])
def test_only_administrators_write(request, who, rest):
    """Everyone with a role reads."""
    rest.post("agents/", BODY)
    other = Rest(request.getfixturevalue(who))
    assert other.get("agents/researcher/").json()["instructions"] == BODY["instructions"]
    assert other.get("agents/").json()["results"][0]["may_use"] is (who == "ada")
    assert other.post("agents/", BODY).status_code == 403
    assert other.patch("agents/researcher/", {"enabled": False}).status_code == 403
    assert other.delete("agents/researcher/").status_code == 403


def test_an_agents_token_reads_what_it_may_use_and_writes_nothing(admin, rest):
    """Also an administrator's."""
    rest.post("agents/", BODY)
    make_agent("off", enabled=False)
    own = agent(admin)
    assert [each["name"] for each in own.get("agents/").json()["results"]] == ["researcher"]
    assert own.get("agents/off/").status_code == 404
    assert own.patch("agents/researcher/", {"enabled": False}).status_code == 403


def test_who_has_no_role_reads_none(rest):
    """They may have no plan carried out, so not by an agent either."""
    make_agent("everyones")
    assert Rest(person("nobody")).get("agents/").status_code == 403


def test_the_list_has_pages(rest):
    """By name."""
    for name in ("cleo", "ann", "bob"):
        make_agent(name)
    first = rest.get("agents/", page_size=2).json()
    assert [each["name"] for each in first["results"]] == ["ann", "bob"]
    second = rest.client.get(first["next"], headers=rest.headers).json()
    assert [each["name"] for each in second["results"]] == ["cleo"]
    assert rest.get("agents/", colour="red").status_code == 422
