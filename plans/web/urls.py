"""URLs of the home page, and of the pages of plans, drafts, agents, sessions and clients, and of trying a tool."""

from django.urls import path

from plans.web import (
    call_list,
    connect,
    demo,
    envelope_form,
    envelopes,
    jump,
    plan_list,
    sessions,
    slices,
    try_tool,
    usage,
)
from plans.web.agents import views as agent_views
from plans.web.compose import ask_views, builder_views, editor_views, step_views
from plans.web.home import views as home_views
from plans.web.plan import input_views, value_views, views

PLAN = "plans/<slug:public_id>"
STEP = f"{PLAN}/steps/<number:step_id>"
urlpatterns = [
    path("", home_views.home, name="home"),
    path("jump/", jump.jump, name="jump"),
    path("tools/<slug:name>/try/", try_tool.try_tool_page, name="tool-try"),
    path("ask/", ask_views.ask, name="ask"),
    path("ask/<slug:public_id>/", ask_views.draft, name="draft"),
    path("ask/<slug:public_id>/start/", ask_views.start_draft_page, name="draft-start"),
    path("ask/<slug:public_id>/cancel/", ask_views.cancel_draft_page, name="draft-cancel"),
    path("plans/", plan_list.plans, name="plans"),
    path("plans/new/", editor_views.new_plan_page, name="plan-new"),
    path("plans/drafts/<slug:public_id>/", builder_views.draft_page, name="plan-draft"),
    path("plans/drafts/<slug:public_id>/steps/<number:number>/", step_views.step_form_page, name="plan-draft-step"),
    path("plans/drafts/<slug:public_id>/plan.json", builder_views.draft_file, {"kind": "json"}, name="plan-draft-json"),
    path("plans/drafts/<slug:public_id>/plan.yaml", builder_views.draft_file, {"kind": "yaml"}, name="plan-draft-yaml"),
    path(f"{PLAN}/", views.plan, name="plan"),
    path(f"{PLAN}/start/", views.start, name="plan-start"),
    path(f"{PLAN}/pause/", views.pause, name="plan-pause"),
    path(f"{PLAN}/resume/", views.resume, name="plan-resume"),
    path(f"{PLAN}/retry/", views.retry, name="plan-retry"),
    path(f"{PLAN}/clone/", views.clone, name="plan-clone"),
    path(f"{PLAN}/change/", editor_views.change_plan_page, name="plan-change"),
    path(f"{PLAN}/prompts/", views.prompts, name="plan-prompts"),
    path(f"{PLAN}/slice/", slices.plan_slice, name="plan-slice"),
    path(f"{PLAN}/cancel/", views.cancel, name="plan-cancel"),
    path(f"{PLAN}/values/<str:key>/", value_views.value, name="plan-value"),
    path(f"{PLAN}/values/<str:key>/file/", value_views.value_file, name="plan-value-file"),
    path(f"{STEP}/outcome/", views.outcome, name="plan-outcome"),
    path(f"{STEP}/input/", input_views.arguments, name="plan-input"),
    path(f"{STEP}/answer/", input_views.give_answer, name="plan-answer"),
    path(f"{STEP}/skip/", views.skip, name="plan-skip"),
    path(f"{STEP}/remind/", views.remind, name="plan-remind"),
    path(f"{STEP}/reveal/", views.reveal, name="plan-reveal"),
    path(f"{STEP}/<slug:name>/", value_views.part, name="plan-part"),
    path(f"{STEP}/<slug:name>/file/", value_views.part_file, name="plan-part-file"),
    path("calls/", call_list.calls, name="calls"),
    path("calls/<slug:public_id>/content/<number:number>/", views.call_content, name="call-content"),
    path("envelopes/", envelopes.envelope_list, name="envelopes"),
    path("envelopes/new/", envelope_form.propose_envelope_page, name="envelope-new"),
    path("envelopes/<slug:public_id>/", envelopes.envelope_page, name="envelope"),
    path("envelopes/<slug:public_id>/end/", envelopes.end_envelope_page, name="envelope-end"),
    path("usage/", usage.usage, name="usage"),
    path("agents/", agent_views.agents, name="agents"),
    path("agents/new/", agent_views.new, name="agent-new"),
    path("agents/<slug:public_id>/", agent_views.agent, name="agent"),
    path("agents/<slug:public_id>/end/", agent_views.end, name="agent-end"),
    path("agents/<slug:public_id>/task/", agent_views.task, name="agent-task"),
    path("connect/", connect.connect, name="connect"),
    path("demo/steps/", demo.demo_steps, name="demo-steps"),
    path("demo/hide/", demo.demo_hide, name="demo-hide"),
    path("connect/<number:pk>/", connect.connected, name="connected"),
    path("sessions/", sessions.sessions, name="sessions"),
    path("sessions/runs/<number:pk>/seen/", sessions.ungated_run_seen, name="ungated-run-seen"),
    path("sessions/<slug:public_id>/", sessions.session, name="session"),
]
