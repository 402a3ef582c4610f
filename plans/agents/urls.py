"""Where the pages of agents are, under /agents/."""

from django.urls import path

from catalog.converters import PUBLIC_ID
from plans.agents import views

urlpatterns = [
    path("", views.agents, name="agents"),
    path("new/", views.new, name="agent-new"),
    path(f"{PUBLIC_ID}/", views.agent, name="agent"),
    path(f"{PUBLIC_ID}/end/", views.end, name="agent-end"),
    path(f"{PUBLIC_ID}/task/", views.task, name="agent-task"),
]
