"""Tools that take secrets, for tests: what they were given, and what they do with it."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, Field, SecretStr

from catalog.models import CallSecret
from catalog.testing import clean_registry
from catalog.tools import Preview, ToolContext, tool

GIVEN: list[Any] = []
ACTS: dict[str, Callable[[Any], Any]] = {}
PASSWORD = "correct horse battery"


def _do(name: str, given: Any) -> Any:
    GIVEN.append(given)
    return ACTS[name](given) if name in ACTS else {"said": f"signed in with {given}", "echo": given}


class Account(BaseModel):
    """The place to sign in."""

    host: str
    pin: SecretStr
    keys: list[Annotated[str, Field(json_schema_extra={"x-secret": True})]] = []


with clean_registry():

    @tool(secret=["password"])
    def sign_in(user: str, password: str, note: Any = None) -> Any:
        """Sign in."""
        return _do("sign_in", password)

    @tool(secret=["password"], retry_safe=True)
    def try_in(user: str, password: str) -> Any:
        """Sign in, perhaps again."""
        return _do("try_in", password)

    @tool(safety_level="dangerous", secret=["password"])
    def wipe(host: str, password: str, note: Any = None) -> Any:
        """Wipe a host."""
        return _do("wipe", password)

    @wipe.preview
    def _(host: str, password: str, note: Any = None) -> Preview:
        GIVEN.append(f"preview {password}")
        return Preview(f"Wipe {host} with {password}", "text", after=f"-p {password}", rows=({"password": password},))

    @tool
    def account(account: Account, *, context: ToolContext) -> Any:
        """Open an account."""
        return _do("account", [account.pin.get_secret_value(), *account.keys])

    @tool
    def jot(value: Any = None) -> Any:
        """Answer with the value."""
        return _do("jot", value)


TOOLS = (sign_in, try_in, wipe, account, jot)


def kept() -> int:
    """Return how many secrets are kept."""
    return CallSecret.objects.count()
