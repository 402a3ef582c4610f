"""Errors of the client.

    ToolgateError
    ├── ConfigurationError   the address, the token or a name is missing or malformed
    ├── ConnectionLost       no answer, however often the request was repeated
    ├── MalformedAnswer      an answer that Toolgate does not give: a redirect, HTML, too large, a missing field
    ├── NotAllowed           a gated function did not run
    └── Problem              an error of Toolgate, a problem document (RFC 9457)
        ├── InvalidRequest   400, 413, 422
        ├── Unauthorized     401: there is no token, or it is no longer valid
        ├── Forbidden        403: a scope or role is missing
        │   └── Refused      a policy refuses the call
        ├── NotFound         404
        ├── Conflict         409
        ├── RateLimited      429
        └── ServerError      500 and above

No error holds the token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class ToolgateError(Exception):
    """Any error of this package."""


class ConfigurationError(ToolgateError):
    """The address, the token, a name or a configuration file is missing or malformed; the message says which."""


class ConnectionLost(ToolgateError):
    """Toolgate did not answer. A request that changes something may have arrived."""


class MalformedAnswer(ToolgateError):
    """The server answered, but not as Toolgate does. Nothing is allowed by such an answer."""


class NotAllowed(ToolgateError):
    """A gated function did not run: it was refused, or nobody decided in time.

    `message` is written for the model that asked. `call`, `approval` and `url` (the approval's page) are None if
    nothing was stored.
    """

    def __init__(
        self, message: str, *, call: str | None = None, approval: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.call, self.approval, self.url = message, call, approval, url


@dataclass(frozen=True, slots=True)
class ProblemDocument:
    """An error as Toolgate describes it.

    `type` is `urn:toolgate:…`, `errors` have `path`, `code` and `message`, `policy` has the `name` and `rule` of the
    policy that refused. `retry_after` is in seconds.
    """

    status: int
    type: str
    detail: str
    errors: Sequence[Mapping[str, Any]] = ()
    policy: Mapping[str, Any] | None = None
    retry_after: float | None = None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Problem(ToolgateError):
    """An error answer; `document` describes it."""

    def __init__(self, document: ProblemDocument) -> None:
        super().__init__(f"{document.detail} (HTTP {document.status})")
        self.document = document

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.document.status


class InvalidRequest(Problem):
    """A field, an argument or a plan is invalid; `document.errors` lists each."""


class Unauthorized(Problem):
    """There is no token, or it is no longer valid."""


class Forbidden(Problem):
    """A scope or role is missing, or a rule forbids the action."""


class Refused(Forbidden):
    """A policy refuses the call; `document.policy` names it."""


class NotFound(Problem):
    """The object does not exist, or this token may not see it."""


class Conflict(Problem):
    """The state has changed, or an idempotency key was used for another request."""


class RateLimited(Problem):
    """A limit is reached; `document.retry_after` is the wait in seconds."""


class ServerError(Problem):
    """Toolgate cannot answer now: it is stopped, its database is unavailable, or it failed."""


_BY_STATUS: Mapping[int, type[Problem]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
}


def problem_for(document: ProblemDocument) -> Problem:
    """Return the exception for a problem document."""
    if document.type == "urn:toolgate:refused":
        return Refused(document)
    return _BY_STATUS.get(document.status, ServerError if document.status >= 500 else Problem)(document)
