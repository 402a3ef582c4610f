"""URLs of the REST endpoints of tools and tokens."""

from django.urls import path

from catalog.api import sources, tokens, views

urlpatterns = [
    path("tools/", views.ToolList.as_view(), name="api-tools"),
    path("tools/<slug:name>/", views.ToolChange.as_view(), name="api-tool"),
    path("tools/<slug:name>/outcomes/", views.ToolOutcomesEndpoint.as_view(), name="api-tool-outcomes"),
    path("tools/<slug:name>/versions/", views.ToolVersions.as_view(), name="api-tool-versions"),
    path("tools/<slug:name>/schema/", views.ToolSchema.as_view(), name="api-tool-schema"),
    path("tools/<slug:name>/validate/", views.ToolValidate.as_view(), name="api-tool-validate"),
    path("tool-schemas/", views.ToolSchemas.as_view(), name="api-tool-schemas"),
    path("sources/", sources.SourceList.as_view(), name="api-sources"),
    path("sources/preview/", sources.SourcePreviewEndpoint.as_view(), name="api-source-preview"),
    path("sources/<str:name>/", sources.SourceDetail.as_view(), name="api-source"),
    path("sources/<str:name>/accept/", sources.SourceAcceptance.as_view(), name="api-source-accept"),
    path("sources/<str:name>/sync/", sources.SourceSync.as_view(), name="api-source-sync"),
    path("tokens/", tokens.TokenList.as_view(), name="api-tokens"),
    path("tokens/current/", tokens.CurrentToken.as_view(), name="api-token-current"),
    path("tokens/<number:number>/", tokens.TokenDetail.as_view(), name="api-token"),
]
