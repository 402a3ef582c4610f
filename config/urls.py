"""URL configuration: pages, the REST API and its OpenAPI document."""

from csp.constants import SELF, UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.renderers import OpenApiJsonRenderer2, OpenApiYamlRenderer
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from approvals.web.consent import ConsentView
from config import installed_app
from config.help import views as help_views
from config.operations.health import healthz, readyz
from config.operations.metrics import metrics
from config.settings_page import settings_page
from config.views import admin_sign_in

# JSON unless YAML is requested; the page's own style element is the only inline style of the product.
api_document = SpectacularAPIView.as_view(renderer_classes=[OpenApiJsonRenderer2, OpenApiYamlRenderer])
api_page = csp_update({"style-src": [SELF, UNSAFE_INLINE]})(SpectacularSwaggerSplitView.as_view(url_name="api-schema"))

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("catalog.api.urls")),
    path("", include("plans.api.urls")),  # before the requests, because approvals/slice/ would match one of them
    path("", include("approvals.api.urls")),
    path("schema/", api_document, name="api-schema"),
    path("docs/", api_page, name="api-docs"),
]


handler400 = "config.views.bad_request_page"
handler404 = "config.views.not_found_page"
handler500 = "config.views.server_error_page"

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("settings/", settings_page, name="settings"),
    path("manifest.webmanifest", installed_app.app_manifest, name="app-manifest"),
    path("service-worker.js", installed_app.service_worker, name="service-worker"),
    path("help/", help_views.help_index, name="help"),
    path("help/for/<slug:section>/", help_views.help_for_section, name="help-for"),
    path("help/pictures/<slug:name>.png", help_views.help_picture, name="help-picture"),
    path("help/<path:name>/", help_views.help_guide, name="help-guide"),
    path("", include("catalog.accounts.urls")),
    path("oauth/authorize/", ConsentView.as_view(), name="oauth-authorize"),
    path("", include("catalog.connections.urls")),
    path("", include("catalog.web.urls")),
    path("", include("approvals.web.urls")),
    path("", include("plans.web.urls")),
    path("api/v1/", include(api_urlpatterns)),
    path("admin/login/", admin_sign_in),
    path("admin/", admin.site.urls),
]
