"""Where the pages of sessions are, under /sessions/."""

from django.urls import path

from catalog.converters import PUBLIC_ID
from plans import session_views

urlpatterns = [
    path("", session_views.sessions, name="sessions"),
    path(f"{PUBLIC_ID}/", session_views.session, name="session"),
]
