"""Sign-in, sign-out, and the frame of the pages."""

import json
import re

import pytest
from django.conf import settings

from approvals.models import AuditEntry
from tests.pages import Pages
from tests.rest import agent

pytestmark = pytest.mark.django_db


def sign_in(pages: Pages, status: int = 200, after: str = "", **fields: str):
    """Send the form of the sign-in page and return the response."""
    pages.open(f"/sign-in/{after}")
    token = pages.field("csrfmiddlewaretoken")
    sent = {"next": pages.field("next"), "csrfmiddlewaretoken": token} | fields
    response = pages.client.post("/sign-in/", sent)
    assert response.status_code == status
    return response


def test_page_redirects_to_sign_in():
    pages = Pages()
    response = pages.client.get("/tools/?q=x")
    assert response["Location"] == "/sign-in/?next=/tools/%3Fq%3Dx"
    response = pages.client.get("/tools/", headers={"HX-Request": "true", "HX-Target": "results"})
    assert (response.status_code, json.loads(response["HX-Trigger"])) == (403, {"toolgate:signed-out": {}})


def test_a_form_that_comes_after_the_session_is_sent_back_with_what_was_typed(rosa):
    pages = Pages(rosa)
    pages.open("/profile/notifications/")
    pages.client.cookies.pop(settings.SESSION_COOKIE_NAME)
    sent = {"address": "https://a.example/<b>", "time_zone": " ", "old_password": "secret-rosa", "seen_digest": "d1"}
    pages.send("/profile/notifications/", sent, 403)
    assert re.findall(r"<textarea[^>]*>(.*?)</textarea>", pages.html) == ["https://a.example/&lt;b&gt;"]
    assert settings.SESSION_COOKIE_NAME not in pages.client.cookies
    assert not {"secret-rosa", "d1"}.intersection(re.findall(r"[\w-]+", pages.html))


@pytest.mark.parametrize(("site", "shows"), [("same-origin", True), ("cross-site", False), ("", False)])
def test_a_form_with_an_old_token_is_sent_back_to_a_page_of_this_site_only(rosa, site, shows):
    """Another site must not choose what a page displays."""
    client = Pages(rosa).client
    response = client.post("/profile/notifications/", {"address": "typed text"}, headers={"Sec-Fetch-Site": site})
    assert response.status_code == 403
    assert ("typed text" in response.content.decode()) == shows


@pytest.mark.parametrize(("after", "leads"), [("", "/"), ("?next=/tools/", "/tools/"), ("?next=//evil.example/", "/")])
def test_signing_in_leads_on_but_never_away(rosa, after, leads):
    response = sign_in(Pages(), 302, after, username="rosa", password="secret-rosa")
    assert response["Location"] == leads
    assert settings.SESSION_COOKIE_NAME in response.cookies


@pytest.mark.parametrize("fields", [{"username": "rosa", "password": "x"}, {"username": "\x00", "password": ""}, {}])
def test_a_failure_does_not_say_which_field(rosa, fields):
    response = sign_in(Pages(), **fields)
    page = response.content.decode()
    assert 'role="alert"' in page or "required" in page
    assert fields.get("password", "") == "" or f'value="{fields["password"]}"' not in page


def test_a_refused_sign_in_says_how_long_to_wait_and_is_kept_once(rosa):
    """The right password is refused, too; tokens are not counted."""
    pages = Pages()
    wrong = [sign_in(pages, username="rosa", password="wrong") for _ in range(10)]
    assert [response.status_code for response in wrong] == [200] * 10
    for _ in range(2):
        response = sign_in(pages, 429, username="rosa", password="secret-rosa")
        assert 0 < int(response["Retry-After"]) <= 60
        assert 'role="alert"' in response.content.decode()
    (entry,) = AuditEntry.objects.filter(action="sign_in.refused")
    assert (entry.actor_name, entry.object_ref) == ("rosa", f"user_{rosa.pk}")
    assert set(json.loads(entry.details)) == {"address", "retry_after"}
    assert agent(rosa).get("approvals/").status_code == 200


def test_admin_sign_in_redirects_to_the_sign_in_page(rosa, admin):
    """Sign-in attempts there would not be throttled."""
    assert Pages().client.get("/admin/login/?next=/admin/auth/")["Location"] == "/sign-in/?next=/admin/auth/"
    assert Pages().client.post("/admin/login/", {"username": "admin"}).status_code in (302, 403)
    Pages(rosa).open("/admin/login/?next=/admin/", 403)


def test_signing_out_requires_a_post(rosa):
    pages = Pages(rosa)
    pages.open("/tools/")
    assert pages.client.get("/sign-out/").status_code == 405
    assert "Sign in" in pages.send("/sign-out/")
    assert pages.client.get("/tools/").status_code == 302


def test_pages_are_not_cached(rosa):
    response = Pages(rosa).client.get("/tools/")
    assert "no-store" in response["Cache-Control"]
    assert "HX-Target" in response["Vary"]


def links_of(pages: Pages, path: str, *, navigation: bool) -> set[str]:
    """Return where a page's sidebar leads, or everything else on it: the sidebar is not there on phones."""
    pages.open(path)
    before, _, rest = pages.html.partition('<nav class="side"')
    sidebar, _, after = rest.partition("</nav>")
    return set(re.findall(r'href="(/[a-z/]*/)"', sidebar if navigation else before + after))


@pytest.mark.parametrize("name", ["ada", "admin"])
def test_phones_lead_everywhere_too(request, name):
    pages = Pages(request.getfixturevalue(name))
    # help leads to the guide that fits the page
    near = {link for link in links_of(pages, "/approvals/", navigation=False) if not link.startswith("/help/")}
    further = {link for path in near for link in links_of(pages, path, navigation=False)}
    sidebar = links_of(pages, "/approvals/", navigation=True)
    assert len(sidebar) > 4
    assert sidebar <= near | further


def test_a_client_that_looks_for_an_oauth_server_is_told_about_its_token(settings):
    """Such a client would report HTML as the error, and hide that its token was refused."""
    settings.TOOLGATE_OAUTH_CLIENTS = "off"
    client = Pages().client
    for answer in (client.get("/.well-known/oauth-protected-resource/mcp"), client.post("/register")):
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/json")
        assert "bearer token" in answer.json()["error_description"]
    assert client.get("/.unknown/")["Content-Type"].startswith("text/html")
