"""Where the tool pages are."""

from django.urls import path

from catalog import views

urlpatterns = [
    path("", views.tools, name="tools"),
    path("<slug:name>/", views.tool, name="tool"),
]
