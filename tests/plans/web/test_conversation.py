"""Tests of questions, answers, request and reply on the plan's page."""

import pytest

from catalog.calls.privacy import PRIVATE_NOTICE
from plans.actions.create import create_plan
from plans.agents.definitions import ToolFilter
from plans.models import Plan
from plans.spec import PlanDocument
from plans.store.requesters import Requester
from tests.builders import make_plan, step, step_of, work_off
from tests.pages import Pages, words
from tests.plans.agents.scripted import agent_plan, agent_step, calls, make_agent
from tests.plans.conftest import script  # noqa: F401 - a fixture
from tests.plans.factories import Origin
from tests.rest import Rest, agent

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script> Which\u202eone?"


def asking(**fields):
    return step(1, "ask_user", parameters={"question": HOSTILE}, **fields)


@pytest.fixture
def plan(catalog, ada) -> Plan:
    """A plan from a request that waits for an answer."""
    document = PlanDocument.model_validate({"goal": "Find it", "steps": [asking()]})
    return work_off(create_plan(document, by=Requester(ada), origin=Origin()))


def page_of(plan: Plan) -> str:
    return f"/plans/{plan.public_id}/"


def test_owner_answers_on_page(plan, ada):
    pages = Pages(ada)
    words = pages.open(page_of(plan))
    assert 'id="question-1"' in pages.html
    assert "Written by the planner, a language model." in words  # people must know whose question it is
    assert "Find the word, please." in words
    assert "<script>alert" not in pages.html
    assert "\u202e" not in pages.html
    pages.send(f"{page_of(plan)}steps/1/answer/", {"text": "This one."})
    assert 'id="question-1"' not in pages.html
    assert work_off(plan).status == "completed"


def test_invalid_answer_is_kept_with_reason(plan, ada):
    pages = Pages(ada)
    pages.open(page_of(plan))
    pages.send(f"{page_of(plan)}steps/1/answer/", {"text": "y" * 4001}, status=422)
    assert "y" * 3999 in pages.html and 'role="alert"' in pages.html
    pages.send(f"{page_of(plan)}steps/1/answer/", {"text": " "}, status=422)
    assert step_of(plan).waiting_for == "input"


def test_second_answer_is_conflict(plan, ada):
    pages = Pages(ada)
    pages.open(page_of(plan))
    pages.send(f"{page_of(plan)}steps/1/answer/", {"text": "This one."})
    pages.send(f"{page_of(plan)}steps/1/answer/", {"text": "That one."}, status=409)
    assert pages.send(f"{page_of(plan)}steps/9/answer/", {"text": "x"}, status=404)


def test_others_do_not_see_question(plan, vera, ben, rosa):
    for who in (vera, ben):
        pages = Pages(who)
        words = pages.open(page_of(plan))
        assert 'id="question-1"' in pages.html and 'id="not-said"' in pages.html
        assert "Which" not in words
        assert "Find the word" not in words
    assert "Which" in Pages(rosa).open(page_of(plan))
    pages = Pages(ben)
    pages.open(page_of(plan))
    pages.send(f"{page_of(plan)}steps/1/answer/", {"text": "x"}, status=403)
    assert step_of(plan).waiting_for == "input"


def test_reply_is_escaped(plan, ada, vera):
    Plan.objects.filter(pk=plan.pk).update(reply="It is <b>fjord</b>.")
    pages = Pages(ada)
    pages.open(page_of(plan))
    assert "It is &lt;b&gt;fjord&lt;/b&gt;." in pages.html.split('id="reply"')[1]
    assert "fjord" not in Pages(vera).open(page_of(plan))


def test_conversation_over_rest_is_private(plan, ada, vera):
    assert Rest(ada).get(f"plans/{plan.public_id}/").json()["reply"] is None
    Plan.objects.filter(pk=plan.pk).update(reply="It is fjord.")
    for answer in (Rest(ada).get(f"plans/{plan.public_id}/").json(), Rest(ada).get("plans/").json()["results"][0]):
        assert (answer["request"], answer["reply"]) == ("Find the word, please.", "It is fjord.")
    for answer in (Rest(vera).get(f"plans/{plan.public_id}/").json(), Rest(vera).get("plans/").json()["results"][0]):
        assert (answer["request"], answer["reply"]) == (PRIVATE_NOTICE, PRIVATE_NOTICE)


def test_conversation_is_a_fragment(plan, ada):
    pages = Pages(ada)
    pages.open(page_of(plan), headers={"HX-Request": "true", "HX-Target": "said"})
    assert pages.html.lstrip().startswith('<div class="stack said')
    assert 'id="question-1"' in pages.html


def test_texts_of_agents_are_marked(catalog, ada):
    client = agent(ada, "plans:write", "plans:read")
    made = client.post("plans/", {"goal": "Ask", "steps": [asking()]}).json()
    work_off(Plan.objects.get(public_id=made["id"]))
    assert "Written by the agent" in Pages(ada).open(f"/plans/{made['id']}/")


def test_question_of_agent_names_author_and_reader(script, ada):  # noqa: F811
    make_agent(tools=ToolFilter(names=["ask_user"]))
    script.says(calls(("ask_user", {"question": HOSTILE})))
    plan = work_off(agent_plan(ada, agent_step(), step(2, "ask_user", parameters={"question": "And you?"})))
    pages = Pages(ada)
    pages.open(f"/plans/{plan.public_id}/")
    theirs, agents = (words(each) for each in pages.html.split('id="question-4"'))
    # People decide by the requester and by the reader of the answer.
    assert "by the agent ann, a language model" in agents
    assert "the model provider of ann reads it" in agents
    assert "Written in the plan by its submitter." in theirs
    assert "reads it" not in theirs


def test_plan_without_conversation_shows_none(catalog, ada):
    pages = Pages(ada)
    pages.open(page_of(make_plan(ada, step(1), start=False)))
    assert "not-said" not in pages.html
    assert 'id="request"' not in pages.html
