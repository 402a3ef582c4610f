"""Where the pages of sessions are, under /sessions/."""

from django.urls import path

from plans import session_views

urlpatterns = [
    path("", session_views.sessions, name="sessions"),
    path("<slug:public_id>/", session_views.session, name="session"),
]
