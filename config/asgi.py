"""ASGI application: lifespan, pages and API, long polling, WebSockets, MCP server.

`application` executes plans unless TOOLGATE_EXECUTOR leaves that to workers; `application_without_executor` never does.
"""

import os

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup(set_prefix=False)

# Imported after django.setup(), because these modules import models.
from config.serving.handler import ThreadedHandler  # noqa: E402
from config.serving.lifespan import Lifespan  # noqa: E402
from config.serving.mcp import McpRouter, McpServer  # noqa: E402
from config.serving.request_headers import SingleHeaders  # noqa: E402
from plans.live.long_polling import WaitForCall  # noqa: E402
from plans.live.waits import until_decided, until_settled  # noqa: E402
from plans.routing import websocket_urlpatterns  # noqa: E402


def build_application(*, executes: bool) -> ProtocolTypeRouter:
    mcp = McpServer()
    return ProtocolTypeRouter(
        {
            "lifespan": Lifespan(executes=executes, around=mcp.run),
            "http": SingleHeaders(McpRouter(mcp, WaitForCall(ThreadedHandler(), until_settled, until_decided))),
            "websocket": SingleHeaders(URLRouter(websocket_urlpatterns)),
        }
    )


application = build_application(executes=settings.TOOLGATE_EXECUTOR == "embedded")
application_without_executor = build_application(executes=False)
