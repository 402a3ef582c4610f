"""Tests of the pages of agents."""

import re
from decimal import Decimal

import pytest

from plans.agents.definitions import AgentBudget, agent_document
from plans.models import Agent, Plan
from plans.web.agents.page import describe_budget
from tests.builders import work_off
from tests.conftest import person
from tests.pages import Pages
from tests.plans.agents.scripted import agent_plan, make_agent

pytestmark = pytest.mark.usefixtures("catalog")
FORM = {
    "name": "researcher",
    "instructions": "Find it out.",
    "model": "",
    "max_level": "cautious",
    "strategy": "react",
    "names": "render_text",
    "rounds": "5",
    "cost": "0.25",
    "enabled": "yes",
    "do": "save",
}


@pytest.fixture
def pages(admin) -> Pages:
    """An administrator's browser."""
    return Pages(admin)


@pytest.fixture(autouse=True)
def model(settings) -> None:
    """Configure a model that is never used."""
    settings.TOOLGATE_MODEL = "openai:scripted"


def test_empty_list_links_to_form(pages, vera):
    pages.open("/agents/")
    assert 'href="/agents/new/"' in pages.html
    reader = Pages(vera)
    reader.open("/agents/")
    assert 'href="/agents/new/"' not in reader.html


def test_agent_is_created_and_changed(pages):
    pages.open("/agents/new/")
    text = pages.send("/agents/new/", FORM)
    assert describe_budget(AgentBudget(rounds=5, cost=Decimal("0.25"))) in text
    change = FORM | {"rounds": "7", "enabled": "yes", "updated_at": pages.field("updated_at")}
    pages.send("/agents/researcher/", change)
    document = agent_document(Agent.objects.get())
    assert (document.budget.rounds, document.tools.names, document.tools.max_level) == (7, ["render_text"], "cautious")
    assert "researcher" in pages.open("/agents/")


def test_problems_are_shown_at_their_fields(pages, settings):
    pages.open("/agents/new/")
    pages.send("/agents/new/", FORM | {"name": "Big Name", "rounds": "many", "cost": "1.1234567"}, status=422)
    assert mistaken_on(pages) == {"name", "rounds", "cost"}
    assert 'value="many"' in pages.html
    pages.send("/agents/new/", FORM | {"model": "gpt-5", "names": "render_txt"}, status=422)
    assert mistaken_on(pages) == {"model", "names"}
    settings.TOOLGATE_MODEL = ""
    pages.send("/agents/new/", FORM, status=422)
    assert mistaken_on(pages) == {"model"}
    assert not Agent.objects.exists()


def mistaken_on(pages: Pages) -> set[str]:
    """Return the fields with a problem on the open page."""
    return set(re.findall(r'id="(?:f-)?(\w+)_error"', pages.html))


def offered_on(pages: Pages) -> list[str]:
    """Return the tools offered on the open page."""
    return re.findall(r'href="/tools/([^/"]+)/"', pages.html.split('id="offers"')[1].split("</section>")[0])


def test_tools_are_previewed_before_saving(pages):
    pages.open("/agents/new/")
    pages.send("/agents/new/", FORM | {"do": "show"})
    assert offered_on(pages) == ["render_text"]
    pages.send("/agents/new/", FORM | {"do": "show", "names": "write_file"})
    assert offered_on(pages) == []
    assert not Agent.objects.exists()


def test_pages_warn_that_provider_receives_private_data(pages, vera):
    pages.open("/agents/new/")
    make_agent()
    reader = Pages(vera)
    reader.open("/agents/ann/")
    assert ['id="goes-to-provider"' in each.html for each in (pages, reader)] == [True, True]


def test_concurrent_change_is_reported(pages, admin):
    make_agent("researcher")
    pages.open("/agents/researcher/")
    seen = pages.field("updated_at")
    other = Pages(admin)
    other.open("/agents/researcher/")
    other.send("/agents/researcher/", FORM | {"updated_at": other.field("updated_at"), "rounds": "9"})
    pages.send("/agents/researcher/", FORM | {"updated_at": seen}, status=422)
    assert mistaken_on(pages) == set() and 'role="alert"' in pages.html
    assert agent_document(Agent.objects.get()).budget.rounds == 9


def test_other_users_cannot_change_agents(ada, vera, pages):
    make_agent("researcher", instructions="Be thorough.")
    for reader in (ada, vera):
        others = Pages(reader)
        assert "Be thorough." in others.open("/agents/researcher/")
        assert 'id="ending"' not in others.html
        assert 'name="instructions"' not in others.html
        others.open("/agents/new/", status=403)
        others.open("/agents/researcher/")
        others.send("/agents/researcher/", FORM, status=403)
        others.send("/agents/researcher/end/", status=403)
    assert agent_document(Agent.objects.get()).instructions == "Be thorough."


def test_agent_is_deleted_or_switched_off(pages, ada):
    make_agent("unused")
    pages.open("/agents/unused/")
    pages.send("/agents/unused/end/")
    assert not Agent.objects.exists()
    pages.open("/agents/unused/", status=404)


def test_task_becomes_plan_of_one_step(ada):
    make_agent("researcher")
    pages = Pages(ada)
    pages.open("/agents/researcher/")
    form = {"task": "Find out who won.", "key": pages.field("key")}
    assert "Find out who won." in pages.send("/agents/researcher/task/", form)
    pages.open("/agents/researcher/")
    pages.send("/agents/researcher/task/", form)
    plan = Plan.objects.get()
    assert (plan.goal, plan.status, plan.steps.get(step_id=1).agent) == (
        "Find out who won.",
        "in_progress",
        "researcher",
    )


@pytest.mark.parametrize("task", ["", "x" * 501, "Find \0 out"])
def test_empty_task_is_refused(ada, task):
    make_agent("researcher")
    pages = Pages(ada)
    pages.open("/agents/researcher/")
    pages.send("/agents/researcher/task/", {"task": task, "key": pages.field("key")}, status=422)
    assert mistaken_on(pages) == {"task"} and f"{task}</textarea>" in pages.html
    assert not Plan.objects.exists()


def test_refused_task_shows_reason(ada, vera, rosa, settings):
    make_agent("ours", groups=["reviewer"])
    make_agent("off", enabled=False)
    make_agent("all")
    for reader, name, note, status in (
        (ada, "ours", "not-yours", 422),
        (ada, "off", "is-off", 409),
        (vera, "all", "no-role", 403),
        (rosa, "ours", "no-role", 403),
    ):
        pages = Pages(reader)
        pages.open(f"/agents/{name}/")
        assert f'id="{note}"' in pages.html
        pages.send(f"/agents/{name}/task/", {"task": "Go.", "key": "k"}, status=status)
    assert not Plan.objects.exists()
    settings.TOOLGATE_MODEL = ""
    pages = Pages(ada)
    assert "TOOLGATE_MODEL" in pages.open("/agents/all/")
    assert "TOOLGATE_MODEL" in pages.send("/agents/all/task/", {"task": "Go.", "key": "k"}, status=503)


def test_runs_show_why_they_stopped(script, ada, vera):
    make_agent("ann")
    script.says("All is well.")
    work_off(agent_plan(ada))
    text = Pages(vera).open("/agents/ann/")
    assert "Try it" in text
    assert "Done" in text and "110 tokens" in text


def test_user_without_role_sees_usable_agents():
    make_agent("all")
    make_agent("ours", groups=["reviewer"])
    pages = Pages(person("nobody"))
    assert "ours" not in pages.open("/agents/")
    pages.open("/agents/all/")
    assert 'id="no-role"' in pages.html
    pages.open("/agents/ours/", status=404)
