"""Where the pages of agents are, under /agents/."""

from django.urls import path

from plans.agents import views

urlpatterns = [
    path("", views.agents, name="agents"),
    path("new/", views.new, name="agent-new"),
    path("<slug:public_id>/", views.agent, name="agent"),
    path("<slug:public_id>/end/", views.end, name="agent-end"),
    path("<slug:public_id>/task/", views.task, name="agent-task"),
]
