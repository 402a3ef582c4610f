"""A client of the REST API: someone with a token of their own, or signed in."""

import json
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from catalog.access.tokens import SCOPES, create_token

ROOT = "/api/v1/"


class Rest:
    """Sends JSON with a bearer token; every scope unless told otherwise."""

    def __init__(self, user: User | None, *scopes: str, kind: str = "personal") -> None:
        self.client = Client(raise_request_exception=False)
        self.headers: dict[str, str] = {}
        self.places: dict[str, str] = {}
        if user is not None:
            self.token, text = create_token(user=user, kind=kind, scopes=scopes or SCOPES)
            self.headers["Authorization"] = f"Bearer {text}"

    def get(self, path: str, **query: Any) -> Any:
        """Read a path."""
        return self.client.get(ROOT + path, query, headers=self.headers)

    def post(self, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        """Post a JSON body, or text as it is."""
        text = body if isinstance(body, str | bytes) else json.dumps({} if body is None else body)
        more = {"Idempotency-Key": key} if key else {}
        sent = {**self.headers, **more, **headers}
        return self.client.post(ROOT + path, text, content_type="application/json", headers=sent)

    def patch(self, path: str, body: Any) -> Any:
        """Change what is at a path."""
        return self.client.patch(ROOT + path, json.dumps(body), content_type="application/json", headers=self.headers)

    def delete(self, path: str, body: Any = None) -> Any:
        """End what is at a path."""
        sent: dict[str, Any] = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        return self.client.delete(ROOT + path, headers=self.headers, **sent)


def agent(user: User, *scopes: str) -> Rest:
    """Return the client of an agent that acts for the user."""
    return Rest(user, *(scopes or ("tools:read", "calls:create", "plans:read", "approvals:read")), kind="agent")


def wrong_paths(response: Any) -> list[str]:
    """Return the paths of a problem document's errors."""
    assert response["Content-Type"] == "application/problem+json"
    return [error["path"] for error in response.json()["errors"]]
