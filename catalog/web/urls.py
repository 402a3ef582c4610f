"""Where the tool pages are."""

from django.urls import path

from catalog.web import views

urlpatterns = [
    path("", views.tools, name="tools"),
    path("<slug:name>/", views.tool_detail, name="tool"),
    path("<slug:name>/change/", views.change_tool, name="tool-change"),
    path("<slug:name>/versions/", views.versions, name="tool-versions"),
]
