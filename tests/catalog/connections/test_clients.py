"""Clients whose id is the address of a metadata document, and clients that an administrator must allow."""

import json
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest
from django.test import Client as Browser

from approvals.models import AuditEntry
from catalog.access.roles import NotAllowed
from catalog.connections import clients, services
from catalog.connections.models import Client, Connection, Step
from catalog.core import clock, egress
from tests.catalog.connections.oauth_client import CALLBACK, OAuthClient
from tests.http_server import serving

pytestmark = pytest.mark.django_db

ADDRESS = "https://client.example/oauth/metadata.json"
JSON = {"Content-Type": "application/json"}


def document(**changes):
    """Return the metadata document of a client."""
    return {"client_id": ADDRESS, "client_name": "Hosted", "redirect_uris": [CALLBACK]} | changes


@pytest.fixture
def published(monkeypatch):
    """Document published at the address: set `content`, or `answer` for a whole response or a failure."""

    class Published:
        content = document()
        answer = None
        fetches = 0

    def get_document(url, **options):
        Published.fetches += 1
        if isinstance(Published.answer, Exception):
            raise Published.answer
        return Published.answer or httpx2.Response(200, headers=JSON, content=json.dumps(Published.content).encode())

    monkeypatch.setattr(egress, "get_document", get_document)
    return Published


def opened(user, status=200, **changes):
    browser = Browser()
    browser.force_login(user)
    response = browser.get(OAuthClient(ADDRESS).address(**changes))
    assert response.status_code == status, response.content
    return response.content.decode()


def test_a_document_names_the_client(ada, published):
    client = OAuthClient(ADDRESS)
    assert client.connected(ada)["access_token"]
    assert published.fetches == 1
    assert Connection.objects.get().client_name == "Hosted"
    stored = Client.objects.get()
    assert (stored.client_id, stored.client_type) == (ADDRESS, "public")


def test_nobody_but_a_person_who_signed_in_makes_the_server_fetch(published):
    assert Browser().get(OAuthClient(ADDRESS).address()).status_code == 302
    assert OAuthClient(ADDRESS, redirect_uri=CALLBACK).exchange().json()["error"] == "invalid_client"
    assert published.fetches == 0


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(302, headers={"Location": "http://127.0.0.1/"}),
        httpx2.Response(404),
        httpx2.Response(200, headers={"Content-Type": "text/html"}, content=b"{}"),
        httpx2.Response(200, headers=JSON, content=b"not json"),
        httpx2.Response(200, headers=JSON, content=b"[]"),
        httpx2.Response(200, headers=JSON, content=json.dumps(document(client_id="https://other.example/x")).encode()),
        httpx2.Response(200, headers=JSON, content=json.dumps(document(client_secret="x")).encode()),
        httpx2.Response(200, headers=JSON, content=json.dumps(document(redirect_uris=[])).encode()),
        httpx2.Response(200, headers=JSON, content=json.dumps(document(redirect_uris=["http://a.example"])).encode()),
        httpx2.Response(
            200, headers=JSON, content=json.dumps(document(token_endpoint_auth_method="client_secret_post")).encode()
        ),
        httpx2.Response(200, headers=JSON, content=json.dumps(document(client_name="a\u202eb")).encode()),
        egress.RequestNotSent("client.example is not public.", again=False),
        egress.RequestNotSent("client.example could not be reached."),
        egress.ResponseTooLarge("The response has more than 16,384 bytes."),
    ],
)
def test_a_bad_document_is_no_client(ada, published, answer):
    published.answer = answer
    opened(ada, 400)
    assert not Client.objects.exists()
    assert Step.objects.get().user == ada


@pytest.mark.parametrize(
    "client_id",
    [
        *("http://client.example/x", "https://client.example", "https://client.example/", "https://client.example/#x"),
        *("https://a@client.example/x", "https://client.example/../x", "https://client.example:99999/x"),
        "https://client.example/" + "x" * 300,
    ],
)
def test_an_address_that_is_no_client_id_is_not_fetched(ada, published, client_id):
    opened(ada, 400, client_id=client_id)
    assert published.fetches == 0


def test_a_document_that_changes_is_read_again(ada, published, monkeypatch):
    opened(ada)
    start = clock.now()
    published.content = document(redirect_uris=["https://new.example/callback"], client_name="New")
    opened(ada)
    assert published.fetches == 1
    monkeypatch.setattr(clock, "now", lambda: start + timedelta(minutes=30))
    opened(ada)
    monkeypatch.setattr(clock, "now", lambda: start + timedelta(hours=24, seconds=1))
    browser = Browser()
    browser.force_login(ada)
    session = browser.session
    session["toolgate.signed_in"] = clock.now().timestamp()
    session.save()
    assert browser.get(OAuthClient(ADDRESS).address()).status_code == 400
    assert (
        "New" in browser.get(OAuthClient(ADDRESS).address(redirect_uri="https://new.example/callback")).content.decode()
    )


def test_a_server_without_a_way_out_offers_registration_alone(ada, published):
    def offered():
        return Browser().get("/.well-known/oauth-authorization-server").json()["client_id_metadata_document_supported"]

    published.answer = egress.RequestNotSent("client.example is not public.", again=False)
    opened(ada, 400)
    assert offered()
    published.answer = egress.RequestNotSent("client.example could not be reached.")
    assert "register instead" in opened(ada, 400)
    assert not offered()
    published.answer = None
    opened(ada)
    assert offered()
    published.answer = egress.RequestNotSent("other.example could not be reached.")
    assert "register instead" not in opened(ada, 400, client_id="https://other.example/metadata.json")
    assert offered()  # this server has a way out


@pytest.mark.parametrize("answer", [egress.RequestNotSent("Not reached."), httpx2.Response(503), httpx2.Response(429)])
def test_a_known_client_outlasts_a_failure_of_its_document(ada, published, answer):
    for _ in range(5):  # fetches that succeed are not counted as failures
        Client.objects.update(cimd_expires_at=clock.now())
        opened(ada)
    Client.objects.update(cimd_expires_at=clock.now())
    published.answer = answer
    for _ in range(5):
        opened(ada)
    assert published.fetches == 6
    Client.objects.update(cimd_expires_at=clock.now())
    published.answer = httpx2.Response(404)
    opened(ada, 400)


def test_a_client_that_is_connected_meanwhile_is_kept(ada):
    client = OAuthClient.registered()
    unused = [each.pk for each in services.unused_clients()]
    assert len(unused) == 1
    client.consent(ada)
    assert services.delete_unused(unused) == 0
    assert client.exchange().status_code == 200


def test_fetches_are_limited(ada, published):
    published.answer = egress.RequestNotSent("client.example could not be reached.")
    for _ in range(3):
        opened(ada, 400)
    opened(ada, 429)
    assert published.fetches == 3


class _Publisher(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Location", "/small")
        if self.path == "/packed":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(b"{}" if self.path != "/huge" else b"x" * 20_000)

    def log_message(self, *args: object) -> None:
        pass


def test_documents_are_fetched_without_redirects_and_within_their_size(settings):
    def get(path: str, host: str = "127.0.0.1") -> int:
        url = f"http://{host}:{server.server_port}{path}"
        return egress.get_document(url, accept="application/json", seconds=5, max_bytes=16_384).status_code

    with serving(HTTPServer(("127.0.0.1", 0), _Publisher)) as server:
        with pytest.raises(egress.RequestNotSent):
            get("/small")
        settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
        assert (get("/small"), get("/moved")) == (200, 302)
        for path in ("/huge", "/packed"):
            with pytest.raises(egress.ResponseTooLarge):
                get(path)


def test_an_administrator_allows_clients_first(ada, admin, settings):
    settings.TOOLGATE_OAUTH_CLIENTS = "known"
    client = OAuthClient.registered()
    row = Client.objects.get()
    OAuthClient.registered(client_name="of a stranger")
    assert client.consent(ada).status_code == 403
    assert list(clients.clients_to_allow()) == [row]
    assert services.delete_unused(Client.objects.values_list("pk", flat=True)) == 1
    with pytest.raises(NotAllowed):
        services.allow_client(row, by=ada)
    services.allow_client(row, by=admin)
    assert client.connected(ada)
    services.forbid_client(row, by=admin)
    assert client.consent(ada).status_code == 403
    assert AuditEntry.objects.filter(action__startswith="client.").count() == 2
