"""Client of Toolgate: call tools, wait for people, and gate functions of one's own process.

from toolgate_client import Client, gated

with Client() as toolgate:                      # TOOLGATE_URL, TOOLGATE_TOKEN
    call = toolgate.call("write_file", {"path": "a.txt", "content": "x"})

@gated(tool="delete_file")
def delete_file(path: str) -> None: ...
"""

from toolgate_client.client import AsyncClient, Client
from toolgate_client.errors import (
    ConfigurationError,
    Conflict,
    ConnectionLost,
    Forbidden,
    InvalidRequest,
    MalformedAnswer,
    NotAllowed,
    NotFound,
    Problem,
    ProblemDocument,
    RateLimited,
    Refused,
    ServerError,
    ToolgateError,
    Unauthorized,
)
from toolgate_client.gating import gated
from toolgate_client.records import Approval, ApprovalLink, Call, Event, Permission, Plan, RunReport, Step

__all__ = [
    "Approval",
    "ApprovalLink",
    "AsyncClient",
    "Call",
    "Client",
    "ConfigurationError",
    "Conflict",
    "ConnectionLost",
    "Event",
    "Forbidden",
    "InvalidRequest",
    "MalformedAnswer",
    "NotAllowed",
    "NotFound",
    "Permission",
    "Plan",
    "Problem",
    "ProblemDocument",
    "RateLimited",
    "Refused",
    "RunReport",
    "ServerError",
    "Step",
    "ToolgateError",
    "Unauthorized",
    "gated",
]
