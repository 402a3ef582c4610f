"""REST endpoints of agents."""

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


def test_an_agent_is_created_and_read(rest):
    first = rest.post("agents/", BODY, key="once")
    assert first.status_code == 201, first.content
    assert rest.post("agents/", BODY, key="once").json()["name"] == "researcher"
    body = rest.get("agents/researcher/").json()
    assert {name: body[name] for name in BODY} == BODY
    assert (body["runs"], body["may_use"]) == (0, True)
    assert kept() == [("agent.created", "researcher", None)]


def test_omitted_fields_have_defaults(rest):
    body = rest.post("agents/", {"name": "ann", "instructions": "Help."}).json()
    assert (body["budget"]["rounds"], body["budget"]["cost"], body["strategy"]) == (10, None, "react")
    assert body["tools"] == {"names": [], "categories": [], "max_level": "dangerous"}
    assert (body["groups"], body["model"], body["enabled"]) == ([], "", True)


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


def test_every_error_has_its_path(rest):
    faults = {}
    for wrong, path, said in MISTAKES:
        answer = rest.post("agents/", BODY | wrong)
        body = answer.json()["errors"][0]["message"] if answer.status_code == 422 else ""
        if said not in body or wrong_paths(answer) != [path]:
            faults[str(wrong)] = answer.content
    assert faults == {}
    assert not Agent.objects.exists()


def test_a_name_is_unique(rest):
    make_agent("researcher", enabled=False)
    answer = rest.post("agents/", BODY)
    assert (answer.status_code, wrong_paths(answer)) == (422, ["name"])


def test_a_change_keeps_omitted_fields(rest):
    rest.post("agents/", BODY)
    change = {"budget": {"rounds": 7}, "enabled": False, "instructions": "Be brief."}
    body = rest.patch("agents/researcher/", change).json()
    assert (body["budget"]["rounds"], body["budget"]["calls"], body["enabled"]) == (7, 20, False)
    assert body["tools"] == BODY["tools"]
    assert body["may_use"] is False
    _, _, changes = kept()[1]
    assert changes[0] == "instructions changed"
    assert "disabled" in changes
    assert "Be brief" not in str(changes)


def test_an_empty_change_is_not_recorded(rest):
    rest.post("agents/", BODY)
    assert rest.patch("agents/researcher/", {}).status_code == 422
    assert rest.patch("agents/researcher/", {"name": "other"}).status_code == 422
    assert rest.patch("agents/researcher/", {"enabled": True}).status_code == 200
    assert [action for action, _, _ in kept()] == ["agent.created"]


def test_names_that_no_longer_exist_do_not_block_a_change(rest):
    Group.objects.create(name="night")
    rest.post("agents/", BODY | {"groups": ["night"]})
    Group.objects.filter(name="night").delete()
    assert rest.patch("agents/researcher/", {"groups": ["night"], "enabled": False}).status_code == 200


def test_an_unused_agent_is_deleted(rest):
    rest.post("agents/", BODY)
    assert rest.delete("agents/researcher/").json()["enabled"] is False
    assert rest.get("agents/researcher/").status_code == 404
    assert rest.post("agents/", BODY).status_code == 201
    assert [action for action, _, _ in kept()] == ["agent.created", "agent.ended", "agent.created"]


def test_a_used_agent_is_disabled_and_kept(rest, ada):
    rest.post("agents/", BODY)
    make_run(Agent.objects.get(), ada)
    rest.delete("agents/researcher/")
    body = rest.get("agents/researcher/").json()
    assert (body["enabled"], body["runs"]) == (False, 1)
    assert rest.patch("agents/researcher/", {"enabled": True}).json()["may_use"] is True


@pytest.mark.parametrize("who", ["ada", "rosa", "vera"])
def test_only_administrators_write(request, who, rest):
    rest.post("agents/", BODY)
    other = Rest(request.getfixturevalue(who))
    assert other.get("agents/researcher/").json()["instructions"] == BODY["instructions"]
    assert other.get("agents/").json()["results"][0]["may_use"] is (who == "ada")
    assert other.post("agents/", BODY).status_code == 403
    assert other.patch("agents/researcher/", {"enabled": False}).status_code == 403
    assert other.delete("agents/researcher/").status_code == 403


def test_an_agents_token_reads_what_it_may_use_and_writes_nothing(admin, rest):
    rest.post("agents/", BODY)
    make_agent("off", enabled=False)
    own = agent(admin)
    assert [each["name"] for each in own.get("agents/").json()["results"]] == ["researcher"]
    assert own.get("agents/off/").status_code == 404
    assert own.patch("agents/researcher/", {"enabled": False}).status_code == 403


def test_users_without_a_role_read_no_agents(rest):
    make_agent("everyones")
    assert Rest(person("nobody")).get("agents/").status_code == 403


def test_the_list_has_pages(rest):
    for name in ("cleo", "ann", "bob"):
        make_agent(name)
    first = rest.get("agents/", page_size=2).json()
    assert [each["name"] for each in first["results"]] == ["ann", "bob"]
    second = rest.client.get(first["next"], headers=rest.headers).json()
    assert [each["name"] for each in second["results"]] == ["cleo"]
    assert rest.get("agents/", colour="red").status_code == 422
