"""The tool paths of the REST API."""

from django.urls import path, register_converter

from catalog import api


class ToolName:
    """A tool's name in a path: what the catalog accepts, nothing else."""

    regex = "[A-Za-z0-9_-]{1,64}"

    def to_python(self, value: str) -> str:
        """Return the name."""
        return value

    def to_url(self, value: str) -> str:
        """Return the name."""
        return value


register_converter(ToolName, "tool")

urlpatterns = [
    path("tools/", api.ToolList.as_view(), name="api-tools"),
    path("tools/<tool:name>/", api.ToolDetail.as_view(), name="api-tool"),
    path("tools/<tool:name>/versions/", api.ToolVersions.as_view(), name="api-tool-versions"),
    path("tools/<tool:name>/schema/", api.ToolSchema.as_view(), name="api-tool-schema"),
    path("tools/<tool:name>/validate/", api.ToolValidate.as_view(), name="api-tool-validate"),
    path("tool-schemas/", api.ToolSchemas.as_view(), name="api-tool-schemas"),
]
