"""The tool paths of the REST API."""

from django.urls import path

from catalog import api, changes_api

urlpatterns = [
    path("tools/", api.ToolList.as_view(), name="api-tools"),
    path("tools/<slug:name>/", changes_api.ToolChange.as_view(), name="api-tool"),
    path("tools/<slug:name>/outcomes/", changes_api.ToolOutcomes.as_view(), name="api-tool-outcomes"),
    path("tools/<slug:name>/versions/", api.ToolVersions.as_view(), name="api-tool-versions"),
    path("tools/<slug:name>/schema/", api.ToolSchema.as_view(), name="api-tool-schema"),
    path("tools/<slug:name>/validate/", api.ToolValidate.as_view(), name="api-tool-validate"),
    path("tool-schemas/", api.ToolSchemas.as_view(), name="api-tool-schemas"),
]
