"""`gated`: a function of one's own process that runs only when Toolgate allows it."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from toolgate_client.client import AsyncClient, Client

F = TypeVar("F", bound=Callable[..., Any])


def gated(
    *, tool: str | None = None, client: Client | AsyncClient | None = None, wait_seconds: float | None = None
) -> Callable[[F], F]:
    """Let a function, ordinary or `async`, run only when Toolgate allows it, and report its result or exception.

    Its arguments, defaults included, go to the catalog's tool `tool` (by default the function's name), whose policies
    decide. It is called with the approved arguments, which a reviewer may have edited, as JSON holds them. Raises
    NotAllowed if it was refused or if nobody decided in `wait_seconds`, ToolgateError if Toolgate cannot be asked, and
    TypeError for arguments that JSON does not have: it has not been called then.

    Without `client`, each call makes one from the environment.
    """

    def gate(function: F) -> F:
        signature = inspect.signature(function)
        _require_named_parameters(signature)
        is_async = inspect.iscoroutinefunction(function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("A generator cannot be gated: it runs after it was called.")
        if client is not None and isinstance(client, AsyncClient) != is_async:
            raise TypeError("An async function needs an AsyncClient, an ordinary one a Client.")
        name = tool or function.__name__

        def call(arguments: dict[str, Any]) -> Any:
            return function(**arguments)

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            arguments = _arguments(signature, *args, **kwargs)
            if isinstance(client, Client):
                return client.run(name, arguments, call, wait_seconds=wait_seconds)
            with Client() as own:
                return own.run(name, arguments, call, wait_seconds=wait_seconds)

        @wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            arguments = _arguments(signature, *args, **kwargs)
            if isinstance(client, AsyncClient):
                return await client.run(name, arguments, call, wait_seconds=wait_seconds)
            async with AsyncClient() as own:
                return await own.run(name, arguments, call, wait_seconds=wait_seconds)

        return cast(F, run_async if is_async else run)

    return gate


def _require_named_parameters(signature: inspect.Signature) -> None:
    """Raise TypeError for parameters without a name under which a reviewer could see and edit them."""
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"The parameter {parameter.name!r} of a gated function must have a name to be passed by.")


def _arguments(signature: inspect.Signature, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return all arguments by name, with the defaults of those that were not given."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    extra = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
    arguments = dict(bound.arguments)
    for name in extra:
        arguments |= arguments.pop(name)
    return arguments
