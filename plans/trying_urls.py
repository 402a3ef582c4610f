"""Where a tool is tried: beside its page, which belongs to the catalog."""

from django.urls import path

from plans.trying_views import trying

urlpatterns = [path("<slug:name>/try/", trying, name="tool-try")]
