"""An OAuth client for tests: it registers, sends a person to the consent page, and exchanges what comes back."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.contrib.auth.models import User
from django.test import Client as Browser

CALLBACK = "http://127.0.0.1:7777/callback"
VERIFIER = "v" * 64
RESOURCE = "http://testserver/mcp"


def challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


@dataclass
class OAuthClient:
    """A registered client. `sent` is the query of the last answer that it received at its redirect address."""

    client_id: str
    secret: str = ""
    redirect_uri: str = CALLBACK
    http: Browser = field(default_factory=Browser)
    sent: dict[str, str] = field(default_factory=dict)

    @classmethod
    def registered(cls, redirect_uri: str = CALLBACK, **metadata: Any) -> "OAuthClient":
        answer = register(redirect_uris=[redirect_uri], **metadata)
        assert answer.status_code == 201, answer.content
        made = answer.json()
        return cls(made["client_id"], made.get("client_secret", ""), redirect_uri)

    def address(self, **changes: str | bytes | list[str] | None) -> str:
        """Return the address of the consent page; a change to None leaves a parameter out."""
        query: dict[str, Any] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": "tools:read calls:create",
            "state": "state-1",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "resource": RESOURCE,
        }
        query |= changes
        return "/oauth/authorize/?" + urlencode({k: v for k, v in query.items() if v is not None}, doseq=True)

    def consent(self, user: User, *, decision: str = "allow", days: str = "30", **changes: Any) -> Any:
        """Decide as a person does who has just signed in; return the response."""
        browser = Browser()
        browser.force_login(user)
        response = browser.post(self.address(**changes), {"decision": decision, "days": days})
        if response.status_code == 303:
            self.receive(response)
        return response

    def receive(self, response: Any) -> None:
        """Read the answer that a redirect brings."""
        self.sent = dict(parse_qsl(urlsplit(response["Location"]).query, keep_blank_values=True))

    def exchange(self, **changes: str | None) -> Any:
        """Exchange the code that was received last."""
        body = {
            "grant_type": "authorization_code",
            "code": self.sent.get("code", ""),
            "redirect_uri": self.redirect_uri,
            "client_id": self.client_id,
            "code_verifier": VERIFIER,
            "resource": RESOURCE,
        }
        return self.post("token", body, changes)

    def refresh(self, refresh_token: str, **changes: str | None) -> Any:
        body = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": self.client_id}
        return self.post("token", body, changes)

    def revoke(self, token: str, **changes: str | None) -> Any:
        return self.post("revoke", {"token": token, "client_id": self.client_id}, changes)

    def post(self, endpoint: str, body: dict[str, str], changes: dict[str, str | None]) -> Any:
        if self.secret:
            body["client_secret"] = self.secret
        sent = {name: value for name, value in (body | changes).items() if value is not None}
        return self.http.post(f"/oauth/{endpoint}/", sent)

    def connected(self, user: User, **changes: Any) -> dict[str, Any]:
        """Connect for a person and return the answer with the tokens."""
        response = self.consent(user, **changes)
        assert response.status_code == 303, response.content
        answer = self.exchange()
        assert answer.status_code == 200, answer.content
        tokens: dict[str, Any] = answer.json()
        return tokens


def register(http: Browser | None = None, **metadata: Any) -> Any:
    body = {"token_endpoint_auth_method": "none", "client_name": "Probe"} | metadata
    return (http or Browser()).post("/oauth/register/", json.dumps(body), content_type="application/json")
