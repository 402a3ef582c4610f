"""The tool paths of the REST API."""

from django.urls import path

from catalog import api, changes_api
from catalog.converters import TOOL

urlpatterns = [
    path("tools/", api.ToolList.as_view(), name="api-tools"),
    path(f"tools/{TOOL}/", changes_api.ToolChange.as_view(), name="api-tool"),
    path(f"tools/{TOOL}/outcomes/", changes_api.ToolOutcomes.as_view(), name="api-tool-outcomes"),
    path(f"tools/{TOOL}/versions/", api.ToolVersions.as_view(), name="api-tool-versions"),
    path(f"tools/{TOOL}/schema/", api.ToolSchema.as_view(), name="api-tool-schema"),
    path(f"tools/{TOOL}/validate/", api.ToolValidate.as_view(), name="api-tool-validate"),
    path("tool-schemas/", api.ToolSchemas.as_view(), name="api-tool-schemas"),
]
