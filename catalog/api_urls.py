"""The tool paths of the REST API."""

from django.urls import path, register_converter

from catalog import api
from catalog.converters import Name

register_converter(Name, "name")

urlpatterns = [
    path("tools/", api.ToolList.as_view(), name="api-tools"),
    path("tools/<name:name>/", api.ToolDetail.as_view(), name="api-tool"),
    path("tools/<name:name>/versions/", api.ToolVersions.as_view(), name="api-tool-versions"),
    path("tools/<name:name>/schema/", api.ToolSchema.as_view(), name="api-tool-schema"),
    path("tools/<name:name>/validate/", api.ToolValidate.as_view(), name="api-tool-validate"),
    path("tool-schemas/", api.ToolSchemas.as_view(), name="api-tool-schemas"),
]
