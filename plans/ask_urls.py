"""Where the pages are on which people ask for plans, under /ask/."""

from django.urls import path

from plans import ask_views

urlpatterns = [
    path("", ask_views.ask, name="ask"),
    path("<slug:public_id>/", ask_views.draft, name="draft"),
    path("<slug:public_id>/start/", ask_views.start, name="draft-start"),
    path("<slug:public_id>/cancel/", ask_views.cancel, name="draft-cancel"),
]
