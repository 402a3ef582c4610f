"""WebSocket routes."""

from typing import Any, cast

from django.urls import URLPattern, path, re_path

from plans.live.event_sockets import NotFoundSocket, PlanEventsSocket, RequestChangesSocket
from plans.live.sockets import Socket
from plans.web.sockets import HomeSocket, InboxSocket, PlanSocket, PlansSocket, SessionSocket, ShellSocket


def socket(route: str, kind: type[Socket]) -> URLPattern:
    """Return the route of a socket class. The cast is needed because Django's types allow views only."""
    pattern: URLPattern = path(route, cast("Any", kind.serve))
    return pattern


websocket_urlpatterns = [
    socket("ws/plans/<slug:plan_ref>/", PlanEventsSocket),
    socket("ws/approvals/", RequestChangesSocket),
    socket("ws/pages/shell/", ShellSocket),
    socket("ws/pages/inbox/", InboxSocket),
    socket("ws/pages/inbox/<slug:view>/", InboxSocket),
    socket("ws/pages/home/", HomeSocket),
    socket("ws/pages/plans/", PlansSocket),
    socket("ws/pages/sessions/<slug:plan_ref>/", SessionSocket),
    socket("ws/pages/plans/<slug:plan_ref>/", PlanSocket),
    socket("ws/pages/plans/<slug:plan_ref>/<slug:fold>/", PlanSocket),
    re_path("", cast("Any", NotFoundSocket.serve)),
]
