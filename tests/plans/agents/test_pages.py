"""The pages of agents: read by everyone with a role, changed by administrators, given tasks by who may use them."""

import pytest

from plans.agents.settings import document_of
from plans.models import Agent, Plan
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
    """A model that nobody asks."""
    settings.TOOLGATE_MODEL = "openai:scripted"


def test_the_list_begins_empty(pages, vera):
    """Who may make one is led there."""
    assert "New agent" in pages.open("/agents/")
    said = Pages(vera).open("/agents/")
    assert "An administrator makes them." in said
    assert "New agent" not in said


def test_an_agent_is_made_and_changed(pages):
    """What was sent is what is stored; the page leads from one to the other."""
    pages.open("/agents/new/")
    said = pages.send("/agents/new/", FORM)
    assert "Made: researcher." in said
    assert "At most: asks its model 5 times, 0.25 US dollars." in said
    change = FORM | {"rounds": "7", "enabled": "yes", "updated_at": pages.field("updated_at")}
    assert "Saved: researcher." in pages.send("/agents/researcher/", change)
    document = document_of(Agent.objects.get())
    assert (document.budget.rounds, document.tools.names, document.tools.max_level) == (7, ["render_text"], "cautious")
    assert "researcher" in pages.open("/agents/")


def test_mistakes_are_told_at_their_fields_and_nothing_is_lost(pages):
    """With what was typed."""
    pages.open("/agents/new/")
    said = pages.send("/agents/new/", FORM | {"name": "Big Name", "rounds": "many", "cost": "1.1234567"}, status=422)
    for words in ("3 fields cannot be taken", "lower-case", "This must be an integer.", "six decimal"):
        assert words in said
    for name in ("name", "rounds", "cost"):
        assert f'id="err-{name}"' in pages.html
    assert 'value="many"' in pages.html
    said = pages.send("/agents/new/", FORM | {"model": "gpt-5", "names": "render_txt"}, status=422)
    assert "provider:model" in said
    assert "Did you mean render_text?" in said
    assert not Agent.objects.exists()


def test_the_tools_it_would_have_are_shown_before_it_is_saved(pages):
    """As ticked, up to the level."""
    pages.open("/agents/new/")
    said = pages.send("/agents/new/", FORM | {"do": "show"})
    assert "in a plan of yours: 1" in said
    said = pages.send("/agents/new/", FORM | {"do": "show", "names": "write_file"})
    assert "None: it can only answer in words." in said
    assert not Agent.objects.exists()


def test_it_is_said_that_private_data_goes_to_the_provider(pages, vera):
    """Where tools are chosen, and to who only reads what it is."""
    assert "what these tools return, private data too" in pages.open("/agents/new/")
    make_agent()
    assert "what the tools it calls return, private data too" in Pages(vera).open("/agents/ann/")


def test_a_change_meanwhile_is_told(pages, admin):
    """Nobody writes over what they have not seen."""
    make_agent("researcher")
    pages.open("/agents/researcher/")
    seen = pages.field("updated_at")
    other = Pages(admin)
    other.open("/agents/researcher/")
    other.send("/agents/researcher/", FORM | {"updated_at": other.field("updated_at"), "rounds": "9"})
    said = pages.send("/agents/researcher/", FORM | {"updated_at": seen}, status=422)
    assert "Someone has changed this agent meanwhile" in said
    assert document_of(Agent.objects.get()).budget.rounds == 9


def test_others_read_and_do_not_write(ada, vera, pages):
    """Neither form nor button; a form that is sent anyway is refused."""
    make_agent("researcher", instructions="Be thorough.")
    for reader in (ada, vera):
        others = Pages(reader)
        assert "Be thorough." in others.open("/agents/researcher/")
        assert "End this agent" not in others.html
        assert 'name="instructions"' not in others.html
        others.open("/agents/new/", status=403)
        others.open("/agents/researcher/")
        others.send("/agents/researcher/", FORM, status=403)
        others.send("/agents/researcher/end/", status=403)
    assert document_of(Agent.objects.get()).instructions == "Be thorough."


def test_an_agent_is_ended(pages, ada):
    """One that never ran is gone; one that did is kept, switched off."""
    make_agent("unused")
    pages.open("/agents/unused/")
    assert "Ended: unused." in pages.send("/agents/unused/end/")
    assert not Agent.objects.exists()
    pages.open("/agents/unused/", status=404)


def test_a_task_becomes_a_plan_of_one_step(ada):
    """It starts at once; the same form makes it once."""
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


@pytest.mark.parametrize(
    ("task", "status", "words"),
    [("", 422, "Say in a sentence"), ("x" * 501, 422, "at most 500"), ("Find \0 out", 422, "NUL")],
)
def test_a_task_needs_words(ada, task, status, words):
    """What was typed stays."""
    make_agent("researcher")
    pages = Pages(ada)
    pages.open("/agents/researcher/")
    assert words in pages.send("/agents/researcher/task/", {"task": task, "key": pages.field("key")}, status=status)
    assert not Plan.objects.exists()


def test_who_may_not_use_it_is_told_why(ada, vera, rosa, settings):
    """By role, by group, switched off, without a model."""
    make_agent("ours", groups=["reviewer"])
    make_agent("off", enabled=False)
    make_agent("all")
    for reader, name, words, status in (
        (ada, "ours", "It is for reviewer.", 422),
        (ada, "off", "It is switched off.", 409),
        (vera, "all", "needs the role operator or administrator", 403),
        (rosa, "ours", "needs the role operator or administrator", 403),
    ):
        pages = Pages(reader)
        assert words in pages.open(f"/agents/{name}/")
        pages.send(f"/agents/{name}/task/", {"task": "Go.", "key": "k"}, status=status)
    assert not Plan.objects.exists()
    settings.TOOLGATE_MODEL = ""
    pages = Pages(ada)
    assert "TOOLGATE_MODEL" in pages.open("/agents/all/")
    assert "TOOLGATE_MODEL" in pages.send("/agents/all/task/", {"task": "Go.", "key": "k"}, status=503)


def test_its_runs_say_why_they_stopped(script, ada, vera):
    """To everyone who sees the plan."""
    make_agent("ann")
    script.says("All is well.")
    work_off(agent_plan(ada))
    said = Pages(vera).open("/agents/ann/")
    assert "Try it" in said
    assert "Done" in said
    assert "asked once, 0 calls, 110 tokens" in said


def test_who_has_no_role_sees_only_what_they_may_use():
    """And may give it no task."""
    make_agent("all")
    make_agent("ours", groups=["reviewer"])
    pages = Pages(person("nobody"))
    assert "ours" not in pages.open("/agents/")
    assert "needs the role" in pages.open("/agents/all/")
    pages.open("/agents/ours/", status=404)
