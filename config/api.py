"""The REST API, mounted from the three layers, with its OpenAPI document and a page to read it."""

from csp.constants import SELF, UNSAFE_INLINE
from csp.decorators import csp_update
from django.urls import include, path
from drf_spectacular.renderers import OpenApiJsonRenderer2, OpenApiYamlRenderer
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

# JSON unless YAML is asked for; the page's own style element is the only inline style of the product.
document = SpectacularAPIView.as_view(renderer_classes=[OpenApiJsonRenderer2, OpenApiYamlRenderer])
page = csp_update({"style-src": [SELF, UNSAFE_INLINE]})(SpectacularSwaggerSplitView.as_view(url_name="api-schema"))

urlpatterns = [
    path("approvals/slice/", include("plans.slices_urls")),  # before the requests: it would be the name of one
    path("", include("catalog.api.urls")),
    path("", include("approvals.api_urls")),
    path("", include("plans.api_urls")),
    path("schema/", document, name="api-schema"),
    path("docs/", page, name="api-docs"),
]
