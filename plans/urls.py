"""Where the pages of plans, requests for plans, agents and sessions are; and trying a tool, beside the tool's page."""

from django.urls import path

from plans import (
    ask_views,
    changes_views,
    inputs_views,
    model_uses_views,
    session_views,
    slice_views,
    trying_views,
    views,
)
from plans.agents import views as agent_views

PLAN = "plans/<slug:public_id>"
STEP = f"{PLAN}/steps/<int:step_id>"
urlpatterns = [
    path("tools/<slug:name>/try/", trying_views.trying, name="tool-try"),
    path("ask/", ask_views.ask, name="ask"),
    path("ask/<slug:public_id>/", ask_views.draft, name="draft"),
    path("ask/<slug:public_id>/start/", ask_views.start, name="draft-start"),
    path("ask/<slug:public_id>/cancel/", ask_views.cancel, name="draft-cancel"),
    path("plans/", views.plans, name="plans"),
    path("plans/new/", views.new, name="plan-new"),
    path(f"{PLAN}/", views.plan, name="plan"),
    path(f"{PLAN}/start/", views.start, name="plan-start"),
    path(f"{PLAN}/pause/", views.pause, name="plan-pause"),
    path(f"{PLAN}/resume/", views.resume, name="plan-resume"),
    path(f"{PLAN}/retry/", changes_views.retry, name="plan-retry"),
    path(f"{PLAN}/clone/", changes_views.clone, name="plan-clone"),
    path(f"{PLAN}/change/", changes_views.change, name="plan-change"),
    path(f"{PLAN}/prompts/", model_uses_views.prompts, name="plan-prompts"),
    path(f"{PLAN}/slice/", slice_views.plan_slice, name="plan-slice"),
    path(f"{PLAN}/cancel/", views.cancel, name="plan-cancel"),
    path(f"{PLAN}/values/<str:key>/", views.value, name="plan-value"),
    path(f"{STEP}/outcome/", views.outcome, name="plan-outcome"),
    path(f"{STEP}/input/", inputs_views.arguments, name="plan-input"),
    path(f"{STEP}/answer/", inputs_views.give_answer, name="plan-answer"),
    path(f"{STEP}/skip/", changes_views.skip, name="plan-skip"),
    path(f"{STEP}/reveal/", views.reveal, name="plan-reveal"),
    path(f"{STEP}/<slug:name>/", views.part, name="plan-part"),
    path("agents/", agent_views.agents, name="agents"),
    path("agents/new/", agent_views.new, name="agent-new"),
    path("agents/<slug:public_id>/", agent_views.agent, name="agent"),
    path("agents/<slug:public_id>/end/", agent_views.end, name="agent-end"),
    path("agents/<slug:public_id>/task/", agent_views.task, name="agent-task"),
    path("sessions/", session_views.sessions, name="sessions"),
    path("sessions/<slug:public_id>/", session_views.session, name="session"),
]
