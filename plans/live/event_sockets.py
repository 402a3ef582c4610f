"""WebSockets for programs: events of a plan, and changes of approval requests. One JSON event per message."""

from dataclasses import asdict
from typing import Any

from approvals.requests.queries import requests_for, waiting_count
from plans.live import sockets
from plans.live.approval_changes import ChangeBatch, request_changes
from plans.live.sockets import TRY_AGAIN, Socket, SocketRefused, SocketUser
from plans.models import Plan
from plans.store.selectors import plan_for


class NotFoundSocket(Socket):
    """The socket for unknown paths under /ws/."""

    def enter(self) -> SocketUser:
        raise SocketRefused(sockets.NOT_FOUND, "There is no socket at this path.")

    async def tell(self, user: SocketUser) -> None:
        """Do nothing: `enter` always refuses first."""


class PlanEventsSocket(Socket):
    """`/ws/plans/{id}/?after=SEQ`: the plan's stored events after number SEQ, then new events as they happen."""

    def enter(self) -> SocketUser:
        return authorize_plan(self.scope, "plans:read")[0]

    async def tell(self, user: SocketUser) -> None:
        after = sockets.parse_after(self.scope["query_string"])
        await self.accept()
        with self.feed.watch(plan_ref_of(self.scope), after) as subscription:
            async for events in subscription:
                for event in events:
                    await self.send_text(event.text)


class RequestChangesSocket(Socket):
    """`/ws/approvals/`: changes of the requests that the user may see, each with the number of pending ones."""

    def enter(self) -> SocketUser:
        # Visibility is checked for each change.
        return sockets.authenticate_socket(self.scope["headers"], "approvals:read")

    async def tell(self, user: SocketUser) -> None:
        async with request_changes(self.feed).follow() as queue:
            await self.accept()
            while not queue.full():
                batch = await queue.get()
                seen = batch if user.sees_all else await self.feed.run(visible_changes, batch, user)
                for change in seen.changes:
                    await self.say({**asdict(change), "waiting": seen.waiting})
        raise SocketRefused(TRY_AGAIN, "This client is too slow. Reconnect and reload the list.")


def visible_changes(batch: ChangeBatch, user: SocketUser) -> ChangeBatch:
    """Return a batch with only the requests that the user may see, in the changes and in the count."""
    mine = requests_for(user.user).filter(public_id__in=[change.id for change in batch.changes])
    ids = set(mine.values_list("public_id", flat=True))
    return ChangeBatch([change for change in batch.changes if change.id in ids], waiting_count(user.user))


def plan_ref_of(scope: Any) -> str:
    return str(scope["url_route"]["kwargs"]["plan_ref"])


def authorize_plan(scope: Any, token_scope: str | None) -> tuple[SocketUser, Plan]:
    """Return the user, and the plan in the path, which they must be allowed to see. Raises SocketRefused."""
    sockets.parse_after(scope["query_string"])
    user = sockets.authenticate_socket(scope["headers"], token_scope)
    try:
        return user, plan_for(user.user, user.token, plan_ref_of(scope))
    except Plan.DoesNotExist:
        raise SocketRefused(sockets.NOT_FOUND, "There is no such plan, or you may not see it.") from None
