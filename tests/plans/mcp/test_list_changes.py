"""The lists that tokens are offered, and the announcements to open streams when they change."""

from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group

from approvals.models import PolicyRevision
from approvals.policies import gate
from catalog.access.tokens import create_token
from catalog.inventory import snapshot
from catalog.models import ApiToken, CatalogState, Tool
from plans.mcp import list_changes
from plans.mcp.callers import Caller
from plans.mcp.list_changes import ListChanges, TooManyStreams
from plans.mcp.listing import list_tools


def digest_of(token: ApiToken) -> str | None:
    """Return the digest of the list that a token is offered now; None if the token has ended."""
    return list_changes.current_digests([Caller(token, token.user)]).get(token.pk)


def read_again() -> None:
    """Read catalog and policies again."""
    CatalogState.objects.update(revision=CatalogState.objects.get().revision + 1)
    snapshot.drop_snapshot()
    gate.invalidate_rules()


@pytest.fixture
def token(catalog: None, ada: Any) -> ApiToken:
    """The token of an agent that may call tools."""
    return create_token(user=ada, kind="agent", scopes=["calls:create"])[0]


def deny_dangerous(token: ApiToken) -> None:
    """Let a policy refuse dangerous calls."""
    PolicyRevision.objects.filter(safety_level="dangerous").update(effect="deny")


def remove_role(token: ApiToken) -> None:
    """Remove the owner's role."""
    token.user.groups.set(Group.objects.none())


def remove_scope(token: ApiToken) -> None:
    """Remove the scope that calls need."""
    ApiToken.objects.update(scopes=["tools:read"])


def disable_tool(token: ApiToken) -> None:
    """Disable a tool."""
    Tool.objects.filter(name="render_text").update(enabled=False)


def revoke(token: ApiToken) -> None:
    """Revoke the token."""
    ApiToken.objects.update(revoked_at="2026-01-01T00:00Z")


@pytest.mark.parametrize("change", [deny_dangerous, remove_role, remove_scope, disable_tool, revoke])
def test_the_digest_changes_with_the_list(token: ApiToken, change: Any) -> None:
    before = digest_of(token)
    read_again()
    assert digest_of(token) == before
    change(token)
    read_again()
    assert digest_of(token) != before


def test_entries_are_built_once_for_each_snapshot(token: ApiToken) -> None:
    first, second = (list_tools(Caller(token, token.user), None).tools for _ in range(2))
    assert all(one is other for one, other in zip(first, second, strict=True))


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """The digests that checks find, by token; without a database."""
    found: dict[int, str] = {1: "a", 2: "a"}

    async def in_thread(function: Any, *arguments: Any) -> Any:
        return dict(found) if function is list_changes.current_digests else "a"

    monkeypatch.setattr(list_changes, "in_thread", in_thread)
    return found


def caller(pk: int) -> Any:
    """Return a caller whose token has this key."""
    return SimpleNamespace(token=SimpleNamespace(pk=pk))


async def test_one_check_serves_all_streams(digests: dict[int, str]) -> None:
    changes = ListChanges()
    async with changes.opened(caller(1)) as one, changes.opened(caller(1)) as two, changes.opened(caller(2)) as three:
        await changes.check()
        assert not any(each.changed.is_set() or each.ended.is_set() for each in (one, two, three))
        digests[1] = "b"
        del digests[2]
        await changes.check()
        assert one.changed.is_set() and two.changed.is_set() and not three.changed.is_set()
        assert three.ended.is_set() and not one.ended.is_set()


async def test_a_token_has_eight_streams(digests: dict[int, str]) -> None:
    changes = ListChanges()
    async with AsyncExitStack() as stack:
        for _ in range(list_changes.MAX_STREAMS_PER_TOKEN):
            await stack.enter_async_context(changes.opened(caller(1)))
        with pytest.raises(TooManyStreams):
            await stack.enter_async_context(changes.opened(caller(1)))
        await stack.enter_async_context(changes.opened(caller(2)))
    async with changes.opened(caller(1)):
        pass
