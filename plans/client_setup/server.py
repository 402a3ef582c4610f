"""A Toolgate server over REST, as the machine of an agent reaches it: by its address and the agent's token alone."""

import ssl
from dataclasses import dataclass, field
from typing import Any

import httpx2

SECONDS = 15


class ServerProblem(Exception):
    """A request was not answered with what was asked for; the text says why.

    `is_final` says that the same request would not be answered later either.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.is_final = 400 <= status < 500 and status != 429


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a server, as `toolgate.json` names it: a proxy, and a file of the certificates to trust."""

    proxy: str = ""
    certificates: str = ""

    @property
    def document(self) -> dict[str, str]:
        named = {"proxy": self.proxy, "certificates": self.certificates}
        return {name: value for name, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class Server:
    """Its address, without slash at its end, the text of a token, and the way to it, which no environment changes."""

    url: str
    token: str
    route: Route = field(default_factory=Route)

    def request(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        """Return the status and the JSON of an answer; 0 and None if the server does not answer as Toolgate does."""
        certificates, proxy = self.route.certificates, self.route.proxy
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        try:
            address = f"{self.url}/api/v1/{path}"
            answer = httpx2.request(
                method,
                address,
                headers=headers,
                json=body,
                params=query,
                timeout=SECONDS,
                proxy=proxy or None,
                verify=ssl.create_default_context(cafile=certificates) if certificates else True,
                trust_env=False,
            )
            return answer.status_code, answer.json()
        except (httpx2.HTTPError, OSError, ValueError):
            return 0, None

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return an object. Raises ServerProblem."""
        status, found = self.request("GET", path, **query)
        if status == 200 and isinstance(found, dict):
            return found
        detail = found.get("detail") if isinstance(found, dict) else None
        message = (
            f"{self.url} answered {status}: {detail}" if detail else f"{self.url} does not answer as Toolgate does."
        )
        raise ServerProblem(message, status)

    def read_token(self) -> dict[str, Any] | None:
        """Return the token as the server knows it: {} if it refuses it, None if it does not answer as Toolgate does."""
        return self._about_token("GET")

    def revoke_token(self) -> bool:
        """Revoke the token; return whether it was."""
        return bool(self._about_token("DELETE"))

    def _about_token(self, method: str) -> dict[str, Any] | None:
        status, found = self.request(method, "tokens/current/")
        if status in (401, 403):
            return {}
        return found if status == 200 and isinstance(found, dict) and found else None
