"""Questions of clients that run their tools themselves: the question, the answer as of now, and the wait for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plans.store.requesters import Requester


@dataclass(frozen=True, slots=True)
class PermissionQuestion:
    """A client's question whether it may run a tool with this input.

    `client` is the name of the source, `tool` the client's own name of its tool, `call_id` the client's id of the call
    (empty if it has none). `cwd` is the working directory that the client claims. `may_defer` says that the client can
    end its process and be resumed after the decision.
    """

    client: str
    session: str
    tool: str
    input: Mapping[str, Any]
    call_id: str = ""
    cwd: str = ""
    may_defer: bool = False


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """The answer as of now. `call` is None if nothing was stored, `input` what is to run (on `allow` only).

    `message` is for the model. `approval` is the id of the request and `url` its page.
    """

    decision: Literal["allow", "deny", "wait", "defer"]
    call: str | None
    input: Mapping[str, Any] | None
    message: str
    approval: str | None = None
    url: str = ""


def ask(question: PermissionQuestion, *, by: Requester) -> PermissionAnswer:
    """Answer a question as of now."""
    return PermissionAnswer("deny", None, None, f"{question.client} cannot be asked yet.")


async def ask_and_wait(question: PermissionQuestion, *, by: Requester, seconds: float) -> PermissionAnswer:
    """Answer a question; while a person has not decided, wait for at most `seconds`."""
    return ask(question, by=by)
