"""Tests of the pages of sessions and their socket."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from catalog.access.tokens import create_token
from plans.models import Plan
from plans.web.sockets import session_source
from tests.builders import make_plan, step, work_off
from tests.conftest import person
from tests.pages import Pages, words
from tests.plans.factories import SessionAgent
from tests.plans.socket_clients import apart, by_session, opened, refused

pytestmark = pytest.mark.usefixtures("catalog")


@pytest.fixture
def nobody(db: None) -> User:
    """Someone without a role."""
    return person("nobody")


def text_of(response: Any) -> str:
    """Return the HTML of a page."""
    return str(response.content.decode())


def test_session_shows_list_and_calls(ada):
    agent = SessionAgent(ada)
    row = agent.setup("Find it", "Send it", objective="Resend the badge")
    call = agent.call("update_step", step_id=1, status="done")
    page = text_of(Pages(ada).client.get(f"/sessions/{row.public_id}/"))
    for shown in ("Resend the badge", "Find it", "Send it", "1 of 2 steps done", "night", "planning_update_step"):
        assert shown in page
    assert f'href="/plans/{call.plan_ref}/?step=1"' in page
    assert f'data-live="/ws/pages/sessions/{row.public_id}/"' in page


def test_empty_states(ada):
    client, agent = Pages(ada).client, SessionAgent(ada)
    shown = [text_of(client.get("/sessions/"))]
    call = agent.call("read_plan")
    shown.append(text_of(client.get(f"/sessions/{call.plan_ref}/")))
    row = agent.setup()
    shown += [text_of(client.get(path)) for path in (f"/sessions/{row.public_id}/", "/sessions/?status=completed")]
    assert ['class="empty"' in page for page in shown] == [True] * 4


def test_list_names_each_session_once(ada):
    SessionAgent(ada).setup("a", objective="Old")
    SessionAgent(ada).setup("a", objective="New")
    SessionAgent(ada, "").setup(objective="Nameless")
    page = text_of(Pages(ada).client.get("/sessions/"))
    assert "Old" not in page and words(page).count("New") == 1
    assert "Default session" in page and "0 of 1" in page and "0 of 0" in page


def test_list_counts_the_calls_of_each_session(ada):
    """Also those in plans and those that set up a list; the steps of the list are none."""
    for _ in range(2):
        SessionAgent(ada).call("read_plan")
    SessionAgent(ada, "").setup("a", "b")
    work_off(make_plan(ada, step(1), step(2)))
    rows = Pages(ada).client.get("/sessions/").context["listed"].rows
    assert {row.name: row.calls for row in rows} == {"night": 2, "": 3}


def test_page_of_list_redirects_to_session(ada):
    row = SessionAgent(ada).setup("a")
    response = Pages(ada).client.get(f"/plans/{row.public_id}/")
    assert (response.status_code, response["Location"]) == (302, f"/sessions/{row.public_id}/")


def test_page_of_call_links_to_session(ada):
    agent = SessionAgent(ada, "<i>night</i>")
    call = agent.call("read_plan")
    pages = Pages(ada)
    page_text = text_of(pages.client.get(f"/plans/{call.plan_ref}/"))
    assert f'href="/sessions/{call.plan_ref}/"' in page_text and "<i>night" not in page_text
    plain = text_of(pages.client.get(f"/plans/{make_plan(ada, step(1)).public_id}/"))
    assert "/sessions/plan_" not in plain


def test_forms_do_not_change_list(ada):
    row = SessionAgent(ada).setup("a")
    Pages(ada).client.post(f"/plans/{row.public_id}/cancel/", {"confirmed": "1"})
    row.refresh_from_db()
    assert row.status == "in_progress"


def test_sessions_visible_to_each_role(ada, vera, nobody):
    row = SessionAgent(ada).setup("a", objective="Mine")
    assert "Mine" in text_of(Pages(vera).client.get("/sessions/"))
    assert "Mine" not in text_of(Pages(nobody).client.get("/sessions/"))
    assert Pages(nobody).client.get(f"/sessions/{row.public_id}/").status_code == 404
    assert Pages(ada).client.get("/sessions/plan_none/").status_code == 404


def test_texts_of_agents_are_escaped(ada):
    row = SessionAgent(ada, "<b>night</b>").setup("<script>alert(1)</script>", objective="<i>x</i>")
    for address in ("/sessions/", f"/sessions/{row.public_id}/"):
        page = text_of(Pages(ada).client.get(address))
        assert "<script>alert" not in page and "<i>x" not in page and "<b>night" not in page


def test_plan_of_session_shows_its_calls(ada):
    agent = SessionAgent(ada, "")
    row = agent.setup("a")
    work_off(make_plan(ada, step(1)))
    assert "render_text" in text_of(Pages(ada).client.get(f"/sessions/{row.public_id}/"))


def test_number_of_queries_is_constant(ada, django_assert_max_num_queries):
    agent, client = SessionAgent(ada), Pages(ada).client
    row = agent.setup(*"abcdefgh")
    for step_id in range(1, 5):
        agent.call("update_step", step_id=step_id, status="done")
    for name in "xyz":
        SessionAgent(ada, name).setup("a")
    with django_assert_max_num_queries(13):
        client.get(f"/sessions/{row.public_id}/")
    with django_assert_max_num_queries(15):
        client.get("/sessions/")


def test_socket_sends_current_parts(ada):
    agent = SessionAgent(ada)
    row = agent.setup("a", "b")
    subject = session_source(row)
    before = subject.draw()
    agent.call("update_step", step_id=2, status="done")
    drawn = subject.draw()
    assert set(drawn.fragments) == {"standing", "list", "calls"}
    assert (before.says, drawn.says) == ("0 of 2 steps done", "1 of 2 steps done")
    page = text_of(Pages(ada).client.get(f"/sessions/{row.public_id}/"))
    assert all(f'id="session-{part}"' in page for part in drawn.fragments)
    agent.setup("x", objective="Other")
    assert "Other" in subject.draw().fragments["list"]


def test_rendering_is_shared_by_plans_of_session(ada):
    agent, other = SessionAgent(ada), SessionAgent(ada, "day")
    row = agent.setup("a")
    call = agent.call("read_plan")
    of_call = session_source(Plan.objects.get(public_id=call.plan_ref))
    assert of_call.key == session_source(row).key != session_source(other.setup("a")).key
    assert of_call.draw() == session_source(row).draw()


def test_unrelated_changes_do_not_render_session(ada, django_assert_num_queries):
    agent = SessionAgent(ada)
    subject = session_source(agent.setup("a"))
    before = subject.draw()
    SessionAgent(ada, "day").setup("x")
    with django_assert_num_queries(2):
        assert subject.draw() is before
    agent.call("read_plan")
    assert subject.draw().fragments["calls"] != before.fragments["calls"]


@pytest.mark.django_db(transaction=True)
async def test_socket_checks_access(ada, nobody):
    row = await apart(SessionAgent(ada).setup, "a")
    path = f"/ws/pages/sessions/{row.public_id}/"
    assert await refused(path, await apart(by_session, nobody)) == 4404
    async with opened(path, await apart(by_session, ada)) as socket:
        messages = [await socket.receive_json_from(timeout=60) for _ in ("session", "shell")]
    assert any("session-list" in html for message in messages for html in message["fragments"])
    assert await apart(Plan.objects.count) > 0


def test_sessions_are_filtered_by_token(ada, ben, admin):
    first, second = (create_token(user=ada, kind="agent", scopes=["calls:create"])[0] for _ in range(2))
    agent, other = SessionAgent(ada, token=first), SessionAgent(ada, token=second)
    call = agent.call("read_plan")
    other.setup("a", objective="Elsewhere")
    page = text_of(Pages(ada).client.get(f"/sessions/?token={first.pk}"))
    assert f'href="/sessions/{call.plan_ref}/"' in page and "Elsewhere" not in page
    address = f'href="/tokens/{first.pk}/"'
    shown = {user: text_of(Pages(user).client.get(f"/sessions/{call.plan_ref}/")) for user in (ada, ben, admin)}
    assert {user: address in text for user, text in shown.items()} == {ada: True, ben: False, admin: True}
    assert "data-ignored" in text_of(Pages(ben).client.get(f"/sessions/?token={first.pk}"))
