"""Toolgate as an installed app: the manifest that browsers read, and the service worker that shows web pushes."""

from functools import cache
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.templatetags.static import static
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

BACKGROUND = "#f6f7f9"
HOUR = 3600


@require_safe
@cache_control(max_age=HOUR, public=True)
def app_manifest(request: HttpRequest) -> HttpResponse:
    """Return the manifest. It is the same for everyone, since browsers read it without a cookie."""
    icons = [
        {"src": static(f"icons/{name}.svg"), "sizes": "any", "type": "image/svg+xml", "purpose": purpose}
        for name, purpose in (("app", "any"), ("app_maskable", "maskable"))
    ]
    manifest = {
        "name": "Toolgate",
        "short_name": "Toolgate",
        "description": _("Decide what agents may do."),
        "id": "/",
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": BACKGROUND,
        "theme_color": BACKGROUND,
        "icons": icons,
    }
    return JsonResponse(manifest, content_type="application/manifest+json")


@cache
def _worker_source() -> bytes:
    return Path(settings.SHIPPED_DIR, "static", "js", "service_worker.js").read_bytes()


@require_safe
@cache_control(no_cache=True)
def service_worker(request: HttpRequest) -> HttpResponse:
    """Return the service worker at the root, so that it may open every page; browsers check it for changes."""
    response = HttpResponse(_worker_source(), content_type="text/javascript; charset=utf-8")
    response["Service-Worker-Allowed"] = "/"
    return response
