"""The bar of a demo: its steps tick themselves, it can be hidden, and no other installation has it."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.audit.log import AuditRecord, append_entry
from plans.demo import bar
from plans.demo.bar import recognise_demo
from plans.demo.installation import CREATED
from tests.builders import act, approve, make_plan, step, work_off


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def in_demo(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that a server has recognised as a demo."""
    monkeypatch.setattr(bar, "_created_at", None)
    append_entry(AuditRecord(action=CREATED))
    recognise_demo()


def steps_done(client: Client, address: str = "/agents/") -> list[bool]:
    """Open a page and return which steps of its bar are ticked."""
    response = client.get(address)
    return [each.done for each in response.context["demo_bar"].steps]


@pytest.mark.usefixtures("in_demo")
def test_steps_of_a_reviewer_tick(stage: object, ada: User, rosa: User) -> None:
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    client = signed_in(rosa)
    assert steps_done(client) == [False, False, False]
    assert steps_done(client, f"/plans/{plan.public_id}/") == [False, True, False]
    assert steps_done(client, "/approvals/insights/") == [False, True, True]
    assert client.get("/demo/steps/?done=2").status_code == 204
    approve(plan, rosa)
    assert client.get("/demo/steps/?done=2").content.count(b'class="done ') == 3
    assert steps_done(client) == [True, True, True]
    assert steps_done(signed_in(ada)) == [False, False, False]


@pytest.mark.usefixtures("in_demo")
def test_operator_is_led_to_the_question(stage: object, ada: User) -> None:
    plan = work_off(make_plan(ada, step(1, "ask_user", parameters={"question": "Which one?"})))
    client = signed_in(ada)
    assert [each.address for each in client.get("/plans/").context["demo_bar"].steps] == [
        f"/plans/{plan.public_id}/", f"/plans/{plan.public_id}/", "/connect/",
    ]  # fmt: skip
    client.post(f"/plans/{plan.public_id}/steps/1/answer/", {"text": "The first."})
    assert steps_done(client) == [True, False, False]


@pytest.mark.usefixtures("in_demo")
def test_hidden_bar_stays_away(rosa: User) -> None:
    client = signed_in(rosa)
    assert client.post("/demo/hide/", {"next": "/agents/"})["Location"] == "/agents/"
    assert b"demo-bar" not in client.get("/agents/").content
    for address in ("https://elsewhere.example/", "nowhere"):
        assert client.post("/demo/hide/", {"next": address})["Location"] == "/"


@pytest.mark.usefixtures("in_demo")
def test_sign_in_page_names_the_people_of_a_demo() -> None:
    page = Client().get("/sign-in/?username=rosa&next=/plans/")
    assert page.context["form"]["username"].value() == "rosa"
    assert b'href="?username=ada&amp;next=%2Fplans%2F"' in page.content


def test_other_installations_have_no_bar(rosa: User) -> None:
    recognise_demo()
    assert b"This is a demo" not in Client().get("/sign-in/").content
    assert b"demo-bar" not in signed_in(rosa).get("/agents/").content
