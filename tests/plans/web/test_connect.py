"""The page Connect an agent: a token made and shown once, what to copy, the first call awaited."""

import ast
import json
import re
import shlex
import tomllib
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import AuditEntry
from catalog.access.tokens import authenticate_token, record_first_refusal
from catalog.core import clock
from catalog.models import ApiToken, Source
from plans.client_setup.clients import CODING_AGENTS
from plans.web.connect_snippets import ADDRESS, CLIENTS, TOKEN, McpClient, Snippet
from tests.house.source import ROOT
from tests.pages import Pages
from tests.rest import Rest

SNIPPETS = [
    pytest.param(snippet, id=f"{client.slug}-{place}")
    for client in CLIENTS.values()
    for place, snippet in enumerate((*client.sign_in, *client.snippets, *client.gate))
]
TEXT = re.compile(r"tg_[\w-]{43}")


@pytest.fixture
def pages(catalog: Any, ada: User) -> Pages:
    """The browser of someone who may call tools."""
    return Pages(ada)


def form_on(pages: Pages, **fields: str) -> dict[str, str]:
    """Return the form of the open page as it would be sent."""
    return {"name": "Cursor of Ada", "access": "calls", "days": "30", "key": pages.field("key"), **fields}


def make_token(pages: Pages, client: str = "cursor", **fields: str) -> str:
    """Make a token on the page of a client and return its text."""
    pages.open(f"/connect/?client={client}")
    pages.send("/connect/", form_on(pages, client=client, **fields))
    found = TEXT.search(pages.html)
    assert found is not None and set(TEXT.findall(pages.html)) == {found[0]}
    return found[0]


def look(pages: Pages, token: ApiToken, seen: str) -> Any:
    """Ask what is new, as the page does by itself."""
    headers = {"HX-Request": "true", "HX-Target": "arrival"}
    return pages.client.get(f"/connect/{token.pk}/?client=cursor&seen={seen}", headers=headers)


def test_the_token_is_made_and_shown_once(pages: Pages, ada: User) -> None:
    text = make_token(pages)
    token = ApiToken.objects.get()
    assert (token.name, token.kind, token.user) == ("Cursor of Ada", "agent", ada)
    assert token.scopes == ["tools:read", "calls:create", "plans:read"]
    assert authenticate_token(text) == token
    assert text not in pages.open(f"/connect/{token.pk}/") and token.prefix in pages.html


def test_the_token_is_limited(pages: Pages) -> None:
    pages.open("/connect/")
    form = form_on(pages, client="cursor", max_level="safe", category_choice="only")
    pages.send("/connect/", form, status=422)
    assert '<details id="limits" open>' in pages.html
    pages.send("/connect/", form | {"categories": "text"})
    assert ApiToken.objects.get().limits == {"max_level": "safe", "categories": ["text"]}


def test_a_form_sent_twice_makes_one_token(pages: Pages) -> None:
    pages.open("/connect/?client=cursor")
    form = form_on(pages, client="cursor")
    pages.send("/connect/", form)
    assert TEXT.search(pages.html)
    pages.send("/connect/", form)
    token = ApiToken.objects.get()
    assert not TEXT.search(pages.html) and token.prefix in pages.html
    pages.send("/connect/", form | {"name": "Another"}, status=409)
    assert ApiToken.objects.count() == 1


def test_nothing_keeps_the_text(pages: Pages, caplog: pytest.LogCaptureFixture) -> None:
    pages.open("/connect/")
    with caplog.at_level("DEBUG"):
        csrf = pages.field("csrfmiddlewaretoken")
        form = form_on(pages, client="curl", csrfmiddlewaretoken=csrf)
        answer = pages.client.post("/connect/", form)
    text = TEXT.search(answer.content.decode())
    assert text is not None and "no-store" in answer["Cache-Control"]
    assert "Location" not in answer and not any(text[0] in str(each) for each in answer.headers.values())
    assert text[0] not in caplog.text and text[0] not in str(dict(pages.client.session))
    assert text[0] not in str(list(AuditEntry.objects.values()))


def test_the_line_turns_green_with_the_first_call(pages: Pages) -> None:
    text = make_token(pages)
    token = ApiToken.objects.get()
    assert look(pages, token, "waiting").status_code == 204
    agent = Rest(None)
    agent.headers["Authorization"] = f"Bearer {text}"
    assert agent.get("tools/").status_code == 200
    reached = look(pages, token, "waiting").content.decode()
    assert 'id="reached"' in reached and 'id="arrival-said"' in reached
    assert look(pages, token, "connected").status_code == 204
    made = agent.post("calls/", {"tool": "render_text", "arguments": {"template": "hi", "values": {}}})
    assert made.status_code == 201, made.content
    called = look(pages, token, "connected").content.decode()
    assert 'id="called"' in called and "render_text" in called and "hx-trigger" not in called
    links = re.findall(r'href="(/sessions/[^"]+)"', called)
    assert links
    pages.open(links[0])
    pages.open(f"/connect/{token.pk}/")
    assert 'id="called"' in pages.html


def test_the_line_turns_green_with_a_refused_call(pages: Pages) -> None:
    make_token(pages)
    token = ApiToken.objects.get()
    ApiToken.objects.update(last_used_at=clock.now())
    record_first_refusal(token, "write_file", "Invalid parameters: path.")
    refused = look(pages, token, "connected").content.decode()
    assert 'id="refused"' in refused and "write_file" in refused and "Invalid parameters: path." in refused
    assert look(pages, token, "refused").status_code == 204


def test_a_token_of_someone_else_is_not_found(pages: Pages, ben: User) -> None:
    make_token(pages)
    Pages(ben).open(f"/connect/{ApiToken.objects.get().pk}/", status=404)
    pages.open(f"/connect/{10**30}/", status=404)


def test_a_token_that_has_ended_is_awaited_no_longer(pages: Pages) -> None:
    make_token(pages)
    ApiToken.objects.update(revoked_at="2026-01-01T00:00Z")
    ended = look(pages, ApiToken.objects.get(), "waiting").content.decode()
    assert 'id="ended"' in ended and "hx-trigger" not in ended


def test_a_viewer_sees_why_and_makes_none(catalog: Any, vera: User) -> None:
    pages = Pages(vera)
    pages.open("/connect/")
    assert 'id="no-role"' in pages.html and "make-token" not in pages.html
    pages.send("/connect/", {"name": "x", "access": "calls", "days": "7", "key": "k"}, status=403)
    assert 'id="no-role"' in pages.html
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize(
    "wrong", [{"name": " "}, {"name": "a\0b"}, {"name": "x" * 129}, {"access": "all"}, {"days": "9999"}, {"key": "?"}]
)
def test_a_wrong_field_makes_no_token(pages: Pages, wrong: dict[str, str]) -> None:
    pages.open("/connect/")
    pages.send("/connect/", form_on(pages) | wrong, status=422)
    assert not ApiToken.objects.exists()


def test_a_hostile_name_and_client_are_shown_as_text(pages: Pages) -> None:
    make_token(pages, name="<b>\u202eevil</b>")
    assert "<b>\u202e" not in pages.html and "\u202e" not in pages.html
    pages.open("/connect/?client=%3Cscript%3E")
    assert "<script>" not in pages.html


def test_the_address_is_that_of_the_settings(pages: Pages, settings: Any) -> None:
    pages.open("/connect/")
    assert "http://testserver/mcp" in pages.html
    settings.TOOLGATE_URL = "https://tools.example.com"
    pages.open("/connect/")
    assert "https://tools.example.com/mcp" in pages.html


def test_snippets_call_a_safe_tool_of_an_enabled_set(pages: Pages) -> None:
    pages.open("/connect/?client=curl")
    assert "render_text" in pages.html and 'data-standing="example-disabled"' not in pages.html
    Source.objects.filter(tools__name="render_text").update(enabled=False)
    pages.open("/connect/?client=curl")
    assert "render_text" not in pages.html and "say_hello" in pages.html
    Source.objects.update(enabled=False)
    pages.open("/connect/?client=curl")
    assert "render_text" in pages.html and 'data-standing="example-disabled"' in pages.html


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_is_well_formed(snippet: Snippet) -> None:
    text = snippet.filled("http://127.0.0.1:8000", "tg_made").text
    assert ADDRESS not in text and TOKEN not in text
    if snippet.language == "json":
        json.loads(text)
    elif snippet.language == "toml":
        tomllib.loads(text)
    elif snippet.language == "python":
        ast.parse(text)
    elif snippet.language == "sh":
        assert shlex.split(text)
    else:
        assert text in ("tg_made\n", "http://127.0.0.1:8000/mcp\n")


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_every_guide_has_a_place_for_address_and_token(client: McpClient) -> None:
    assert client.sign_in or client.snippets
    address = ADDRESS if client.slug == "python" else f"{ADDRESS}/mcp"  # it speaks REST
    for snippets, then in ((client.sign_in, client.sign_in_then), (client.snippets, client.then)):
        assert any(address in each.text for each in snippets) or not snippets
        assert bool(snippets) == bool(then) and "```" not in then
    assert any(TOKEN in each.text for each in client.snippets) or not client.snippets
    assert not any(TOKEN in each.text for each in client.sign_in)
    assert all(text and "```" not in text for text in (client.label, client.waiting))


@pytest.mark.parametrize("slug", list(CODING_AGENTS))
def test_a_coding_agent_can_be_gated_with_a_token_that_asks(pages: Pages, slug: str) -> None:
    client = CLIENTS[slug]
    assert client.gate_then.startswith("Start ") and len(client.gate_limits) > 2
    assert not any(sign in text for text in (client.gate_then, *client.gate_limits) for sign in ("`", "]("))
    pages.open(f"/connect/?client={slug}")
    assert 'id="gate"' in pages.html and 'href="/policies/#coding-agent-h"' in pages.html
    pages.send("/connect/", form_on(pages, client=slug, access="gate"))
    assert "permissions:ask" in ApiToken.objects.get().scopes
    assert [TOKEN in each.text for each in pages.context["page"].gate] == [False]


def test_the_index_leads_to_every_guide() -> None:
    index = (ROOT / "docs" / "connect" / "README.md").read_text(encoding="utf-8")
    guides = {path.name for path in (ROOT / "docs" / "connect").glob("*.md")} - {"README.md"}
    assert guides == {f"{slug}.md" for slug in CLIENTS}
    assert all(f"]({guide})" in index for guide in guides)


def test_signing_in_comes_first_where_client_and_installation_do_it(pages: Pages, settings: Any) -> None:
    pages.open("/connect/?client=claude")
    assert pages.context["page"].sign_in and 'id="not-public"' in pages.html and 'id="connect-form"' not in pages.html
    pages.open("/connect/?client=claude-code")
    html = pages.html
    assert html.index('id="sign-in"') < html.index('id="connect-form"') and 'id="not-public"' not in html
    pages.open("/connect/?client=curl")
    assert 'id="sign-in"' not in pages.html
    settings.TOOLGATE_OAUTH_CLIENTS = "off"
    pages.open("/connect/?client=claude")
    assert 'id="no-oauth"' in pages.html
    pages.open("/connect/?client=claude-code")
    assert 'id="sign-in"' not in pages.html and 'id="connect-form"' in pages.html
    settings.TOOLGATE_OAUTH_CLIENTS = "any"
    settings.TOOLGATE_URL = "https://tools.example.com"
    pages.open("/connect/?client=claude")
    assert 'id="not-public"' not in pages.html and "https://tools.example.com/mcp" in pages.html
