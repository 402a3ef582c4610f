"""Where the pages are on which people ask for plans, under /ask/."""

from django.urls import path

from catalog.converters import PUBLIC_ID
from plans import ask_views

urlpatterns = [
    path("", ask_views.ask, name="ask"),
    path(f"{PUBLIC_ID}/", ask_views.draft, name="draft"),
    path(f"{PUBLIC_ID}/start/", ask_views.start, name="draft-start"),
    path(f"{PUBLIC_ID}/cancel/", ask_views.cancel, name="draft-cancel"),
]
