"""Jump and the page that does not exist: what is found, by whom, and without JavaScript."""

import re

import pytest
from django.contrib.auth.models import User

from approvals.models import Policy
from approvals.web.review import inbox
from plans.models import Plan
from plans.web.jump import JumpPage, jump_page, nearest_to_path
from tests.approvals.factories import ask
from tests.builders import make_plan, request_of, step, work_off, write_step
from tests.catalog.connections.oauth_client import OAuthClient
from tests.conftest import person
from tests.pages import Pages

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("catalog", "workspace")]


def found(page: JumpPage) -> dict[str, list[str]]:
    """Return the labels of the results by kind."""
    return {group.key: [hit.label for hit in group.hits] for group in page.groups}


@pytest.fixture
def waiting(ada: User) -> Plan:
    return work_off(make_plan(ada, write_step(1), step(2, dependencies=[1]), goal="Archive the protocols"))


def test_each_kind_is_found_by_words_of_its_name(admin: User, waiting: Plan) -> None:
    Policy.objects.filter(order=20).update(name="Protocols need two people")
    assert found(jump_page(admin, "protocols")) == {
        "plans": ["Archive the protocols"],
        "policies": ["Protocols need two people"],
    }
    assert found(jump_page(admin, "write_fi")) == {"tools": ["write_file"], "requests": ["Create note.txt"]}
    assert found(jump_page(admin, "create note"))["requests"] == ["Create note.txt"]
    assert found(jump_page(admin, "audit l")) == {"pages": ["Audit log"]}
    assert found(jump_page(admin, "ada"))["people"] == ["Ada"]
    assert found(jump_page(admin, "review"))["groups"] == ["reviewer"]


def test_people_find_their_own_connections(admin: User, ada: User, ben: User) -> None:
    OAuthClient.registered(client_name="Claude").connected(ada)
    assert found(jump_page(ada, "claude"))["connections"] == ["Claude"]
    assert found(jump_page(admin, "claude"))["connections"] == ["Claude"]
    assert "connections" not in found(jump_page(ben, "claude"))


def test_an_id_or_its_beginning_leads_to_its_page(admin: User, waiting: Plan) -> None:
    request = request_of(waiting, 1)
    leads = {
        waiting.public_id: f"/plans/{waiting.public_id}/",
        request.public_id[:12]: f"/approvals/?item={request.public_id}",
        request.call.public_id: f"/plans/{waiting.public_id}/?step=1",
    }
    assert {text: jump_page(admin, text).groups[0].hits[0].address for text in leads} == leads


def test_summaries_are_found_by_words_with_any_letters(admin: User, ada: User) -> None:
    work_off(make_plan(ada, write_step(1, path="Übersicht.txt")))
    assert found(jump_page(admin, "übersicht"))["requests"] == ["Create Übersicht.txt"]


def test_access_is_part_of_every_query(ada: User, waiting: Plan) -> None:
    """A person without a role finds only their own plans and requests; only administrators find people and sources."""
    outsider, request = person("outsider"), request_of(waiting, 1)
    for text in ("protocols", waiting.public_id, request.public_id, request.call.public_id, "pause", "ada"):
        page = jump_page(outsider, text)
        assert found(page) == {}, text
        assert not [hit for hit in page.similar if waiting.public_id in hit.address], text
    assert found(jump_page(outsider, "write_file")).keys() == {"tools"}
    assert nearest_to_path(outsider, "/plans/archive-protocols/") == nearest_to_path(outsider, "/plans/nothing-at-all/")
    assert not {"policies", "people", "groups", "sources"} & found(jump_page(outsider, "e")).keys()
    assert "Audit log" not in found(jump_page(ada, "audit")).get("pages", [])


def test_a_plan_is_paused_from_jump_and_no_command_decides_a_request(ada: User, rosa: User, waiting: Plan) -> None:
    pages = Pages(ada)
    pages.open("/jump/?q=pause+protocols")
    posts = set(re.findall(r'<form method="post" action="([^"]+)"', pages.html)) - {"/sign-out/"}
    assert posts == {f"/plans/{waiting.public_id}/pause/"}
    pages.send(posts.pop())
    waiting.refresh_from_db()
    assert waiting.paused_at is not None
    assert found(jump_page(ada, "resume"))["commands"] == ["Resume plan: Archive the protocols"]
    for text in ("pause", "resume", "approve", "reject", request_of(waiting, 1).public_id):
        page = jump_page(rosa, text)
        assert not [hit for group in page.groups for hit in group.hits if hit.is_command], text


def test_hostile_text_is_searched_and_shown_as_text(admin: User) -> None:
    ask(admin)
    for text in ("%", "_", "'\"", "\x00", "<b>", "a" * 5000, "apr_" + "\u202e", "(" * 200, "NEAR(a b)", "plan_%%%%%%"):
        assert "<b>" not in Pages(admin).open(f"/jump/?q={text.replace('%', '%25').replace(chr(0), '%00')}")


def test_a_missing_page_keeps_the_navigation_and_names_similar_ones(admin: User, waiting: Plan) -> None:
    pages = Pages(admin)
    leads = {
        "/tools/wrte_file/": "/tools/write_file/",
        "/tools/wrte_file/versions/": "/tools/write_file/",
        "/polices/": "/policies/",
        "/plans/archive-protocols/": f"/plans/{waiting.public_id}/",
    }
    for path, address in leads.items():
        pages.open(path, 404)
        assert address in re.findall(r'href="([^"]+)"', pages.html.partition("Did you mean")[2]), path
        assert '<nav class="side"' in pages.html
    assert '<nav class="side"' not in Pages().client.get("/polices/").content.decode()


def test_only_the_oldest_requests_are_searched(ada: User, rosa: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a longer queue is found by its id."""
    for _ in range(2):
        ask(ada)
    assert len(found(jump_page(rosa, "note"))["requests"]) == 2
    monkeypatch.setattr(inbox, "MOST_READ", 1)
    assert len(found(jump_page(rosa, "note"))["requests"]) == 1
