"""Pages of connections: who sees which, changed limits, the end, the log, and clients that need permission."""

import pytest

from catalog.access.tokens import change_token
from catalog.connections.authentication import authenticate_at_mcp
from catalog.connections.models import Client, Connection
from catalog.ui.token_limits import limits_in_words
from plans.actions.call import CallOrder, create_call
from plans.store.requesters import Requester
from tests.catalog.connections.oauth_client import OAuthClient
from tests.pages import Pages

pytestmark = pytest.mark.django_db
LIMITS = {"max_level": "safe", "category_choice": "any", "source_choice": "any"}


def connect(user, name="Claude"):
    """Connect a client for a person; return the number of its page and its access token."""
    answer = OAuthClient.registered(client_name=name).connected(user)
    return Connection.objects.latest("pk").token_id, answer["access_token"]


def test_people_see_their_own_connections_and_administrators_all(stage, ada, ben, admin):
    mine, _ = connect(ada)
    theirs, _ = connect(ben, "Codex")
    pages = Pages(ada)
    html = pages.open("/connections/")
    assert "Claude" in html and "Codex" not in html
    pages.open(f"/connections/{theirs}/", status=404)
    pages = Pages(admin)
    html = pages.open("/connections/")
    assert "Claude" in html and "Codex" in html
    pages.open(f"/connections/{mine}/")


def test_limits_are_changed_and_the_end_is_at_once(stage, ada):
    number, text = connect(ada)
    pages = Pages(ada)
    pages.open(f"/connections/{number}/")
    assert not pages.context["row"].limits
    pages.send(f"/connections/{number}/limits/", LIMITS | {"category_choice": "only"}, status=422)
    pages.send(f"/connections/{number}/limits/", LIMITS)
    pages.open(f"/connections/{number}/")
    assert {tool.level for tool in pages.context["outlook"].tools} == {"safe"}
    found = authenticate_at_mcp(text)
    assert found is not None and found.limits == {"max_level": "safe"}
    pages.send(f"/connections/{number}/end/")
    assert authenticate_at_mcp(text) is None
    connect(ada, "Codex")
    for tab, name in (("active", "Codex"), ("ended", "Claude")):
        pages.open(f"/connections/?status={tab}")
        assert [row.connection.client_name for row in pages.context["listed"].rows] == [name]
    change = f"/connections/{number}/limits/"
    pages.open(f"/connections/{number}/")
    assert change not in pages.html


def test_others_neither_change_nor_end_a_connection(stage, ada, ben):
    number, text = connect(ada)
    pages = Pages(ben)
    pages.open("/connections/")
    for action in ("limits", "end"):
        assert pages.client.post(f"/connections/{number}/{action}/", LIMITS).status_code in (403, 404)
    found = authenticate_at_mcp(text)
    assert found is not None and found.limits is None


def test_administrators_allow_clients_where_they_must_be_known(stage, ada, admin, settings):
    settings.TOOLGATE_OAUTH_CLIENTS = "known"
    client = OAuthClient.registered(client_name="Claude")
    row = Client.objects.get()
    assert client.consent(ada).status_code == 403
    pages = Pages(ada)
    pages.open("/connections/")
    assert not pages.context["waiting_clients"] and f"/connections/clients/{row.pk}/" not in pages.html
    assert pages.client.post(f"/connections/clients/{row.pk}/", {"do": "allow"}).status_code == 403
    pages = Pages(admin)
    pages.open("/connections/")
    assert pages.context["waiting_clients"] == [row]
    pages.send(f"/connections/clients/{row.pk}/", {"do": "allow"})
    assert client.consent(ada).status_code == 303
    pages.open("/connections/")
    pages.send(f"/connections/clients/{row.pk}/", {"do": "forbid"})
    assert client.consent(ada).status_code == 403


def test_list_counts_calls_and_waiting_requests(stage, ada, django_assert_max_num_queries):
    for name in ("Claude", "Codex", "Cursor"):
        connect(ada, name)
    for connection in Connection.objects.select_related("token__user"):
        by = Requester(ada, connection.token, via="mcp")
        for tool in ("safe", "dangerous"):
            create_call(CallOrder(tool, {"value": connection.pk}), by=by)
    change_token(connection.token, {"limits": {"sources": ["wiki"]}}, by=ada)
    pages = Pages(ada)
    with django_assert_max_num_queries(30):
        pages.open("/connections/")
    rows = pages.context["listed"].rows
    assert [(row.calls, row.waiting) for row in rows] == [(2, 1)] * 3
    assert sorted(bool(row.limits) for row in rows) == [False, False, True]


def test_failed_attempts_of_clients_that_never_connected_are_listed(stage, ada, ben, admin):
    client = OAuthClient.registered(client_name="Claude")
    assert client.consent(ada, redirect_uri="http://127.0.0.1:7777/elsewhere").status_code == 400
    for person, is_listed in ((ada, True), (admin, True), (ben, False)):
        pages = Pages(person)
        assert ("redirect address is not one" in pages.open("/connections/")) is is_listed


def test_limits_name_sources_as_pages_do():
    assert limits_in_words({"sources": ["catalog.toolsets.workspace", "wiki"]}) == ["sources Workspace, wiki"]
