"""A provider of OpenID Connect on this machine: discovery, token and user info. A test plays the browser."""

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt

from catalog.core import clock


class ProviderHandler(BaseHTTPRequestHandler):
    server: "OidcProvider"

    def do_GET(self) -> None:
        """Answer discovery and user info."""
        if self.path == "/userinfo":
            self._answer(self.server.userinfo)
            return
        issuer = self.server.issuer
        endpoints = {"authorization_endpoint": f"{issuer}/authorize", "token_endpoint": f"{issuer}/token"}
        more = {"userinfo_endpoint": f"{issuer}/userinfo", "jwks_uri": f"{issuer}/keys"}
        self._answer({"issuer": issuer, **endpoints, **more, **self.server.discovery})

    def do_POST(self) -> None:
        """Exchange a code, once, for the verifier of its challenge."""
        sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        digest = hashlib.sha256(sent.get("code_verifier", [""])[0].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if self.server.challenges.pop(sent.get("code", [""])[0], None) != challenge:
            self._answer({"error": "invalid_grant"}, 400)
            return
        claims = {"iss": self.server.issuer, "aud": "toolgate", "exp": clock.now().timestamp() + 60}
        token = jwt.encode({**claims, **self.server.claims}, "k" * 32)
        id_token = {"id_token": token} if self.server.sends_id_token else {}
        self._answer({"access_token": "access", "token_type": "Bearer", **id_token})

    def _answer(self, body: dict[str, Any], status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class OidcProvider(HTTPServer):
    """`claims` are those of the ID token, `userinfo` and `discovery` what is answered there."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ProviderHandler)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.discovery: dict[str, Any] = {}
        self.challenges: dict[str, str] = {}
        self.sends_id_token = True

    def identify(self, subject: str, **claims: Any) -> None:
        """Let the provider name this subject from now on."""
        self.claims = self.userinfo = {"sub": subject, **claims}

    def authorize(self, address: str) -> str:
        """Return the query of the redirect back to the site, as after a sign-in at the provider."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["code_challenge_method"] == "S256"
        code = f"code{len(self.challenges)}{asked['state']}"
        self.challenges[code] = asked["code_challenge"]
        return f"?code={code}&state={asked['state']}"
