"""A client of the REST API on one persistent connection, like an agent's."""

import json
from http.client import HTTPConnection
from typing import Any


class Client:
    """Posts JSON with a token."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path: str, body: dict[str, Any], status: int = 201) -> Any:
        """Return the JSON of the response. Raises RuntimeError if its status is another."""
        self._connection.request("POST", f"/api/v1/{path}", json.dumps(body), self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != status:
            raise RuntimeError(f"{path} answered {response.status}: {answer[:500]!r}")
        return json.loads(answer)
