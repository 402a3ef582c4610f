"""URLs of the tool, source and token pages."""

from django.urls import path

from catalog.web import account_links, http_tools, new_source, profile, saved_filters, sources, tokens, views

urlpatterns = [
    path("tools/", views.tools, name="tools"),
    path("tools/<slug:name>/", views.tool_detail, name="tool"),
    path("tools/<slug:name>/change/", views.change_tool, name="tool-change"),
    path("tools/<slug:name>/versions/", views.versions, name="tool-versions"),
    path("sources/", sources.source_list, name="sources"),
    path("sources/new/", new_source.new_source, name="source-new"),
    path("sources/http/new/", http_tools.new_http_tool, name="http-tool-new"),
    path("sources/http/<slug:name>/change/", http_tools.change_http_tool, name="http-tool-change"),
    path("sources/<str:name>/", sources.source_detail, name="source"),
    path("sources/<str:name>/change/", sources.change_source, name="source-change"),
    path("sources/<str:name>/accept/", sources.accept_changes, name="source-accept"),
    path("sources/<str:name>/sync/", sources.sync_source, name="source-sync"),
    path("welcome/", account_links.welcome, name="welcome"),
    path("saved-filters/", saved_filters.save_filter, name="saved-filters"),
    path("saved-filters/<number:number>/delete/", saved_filters.delete_filter, name="saved-filter-delete"),
    path("profile/", profile.profile, name="profile"),
    path("profile/choose/", profile.choose_setting, name="profile-choose"),
    path("profile/tokens/", tokens.own_tokens, name="own-tokens"),
    path("profile/tokens/new/", tokens.new_token, name="token-new"),
    path("profile/tokens/tools/", tokens.token_tools, name="token-tools"),
    path("tokens/", tokens.all_tokens, name="tokens"),
    path("tokens/<number:number>/", tokens.token_detail, name="token"),
    path("tokens/<number:number>/change/", tokens.change_token, name="token-change"),
    path("tokens/<number:number>/limits/", tokens.change_limits, name="token-limits"),
    path("tokens/<number:number>/waits/", tokens.reset_waits, name="token-waits"),
    path("tokens/<number:number>/revoke/", tokens.revoke_token, name="token-revoke"),
]
