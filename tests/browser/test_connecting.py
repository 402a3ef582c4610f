"""Connecting a client in the browser: the redirect to it after the form, which a content policy could stop."""

import socket
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from catalog.connections.models import Client
from tests.browser.conftest import PageAs
from tests.catalog.connections.oauth_client import OAuthClient, register
from tests.http_server import serving

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


class _Listener(HTTPServer):
    """A client that waits on a loopback address; `heard` are the paths it was sent."""

    def __init__(self, host: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Callback)
        self.heard: list[str] = []


class _Callback(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, _Listener)
        self.server.heard.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"connected")

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("host", "written"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_the_browser_goes_to_the_client_after_the_consent(ada, page_as: PageAs, host: str, written: str):
    page = page_as(ada)
    with serving(_Listener(host)) as listener:
        callback = f"http://{written}:{listener.server_port}/callback"
        client = OAuthClient(register(redirect_uris=[callback]).json()["client_id"], redirect_uri=callback)
        page.goto(client.address(resource=None))
        page.locator("button[value=allow]").click()
        page.wait_for_url("**/callback?*")
        assert "code=" in page.url and "state=state-1" in page.url
        heard = [path for path in listener.heard if path.startswith("/callback")]
    assert len(heard) == 1
    assert Client.objects.count() == 1
