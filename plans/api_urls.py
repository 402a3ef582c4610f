"""The paths of the REST API for plans and their slices, sessions, agents and calls."""

from django.urls import path

from plans import api, calls_api, changes_api, drafts_api, prompts_api, sessions_api, slices_api
from plans.agents import api as agents_api

PLAN = "plans/<slug:public_id>/"
urlpatterns = [
    path("approvals/slice/", slices_api.SliceApproval.as_view(), name="api-slice"),
    path("approvals/slice/preview/", slices_api.SlicePreview.as_view(), name="api-slice-preview"),
    path("plans/", api.PlanList.as_view(), name="api-plans"),
    path("plans/check/", api.PlanCheck.as_view(), name="api-plan-check"),
    path("plans/draft/", drafts_api.DraftList.as_view(), name="api-plan-drafts"),
    path("plans/draft/<slug:public_id>/", drafts_api.DraftDetail.as_view(), name="api-plan-draft"),
    path("plans/draft/<slug:public_id>/start/", drafts_api.DraftStart.as_view(), name="api-plan-draft-start"),
    path(PLAN, changes_api.ChangeablePlan.as_view(), name="api-plan"),
    path(f"{PLAN}memory/", api.PlanMemory.as_view(), name="api-plan-memory"),
    path(f"{PLAN}events/", api.PlanEvents.as_view(), name="api-plan-events"),
    path(f"{PLAN}prompts/", prompts_api.PlanPrompts.as_view(), name="api-plan-prompts"),
    path(f"{PLAN}start/", api.PlanStart.as_view(), name="api-plan-start"),
    path(f"{PLAN}pause/", api.PlanPause.as_view(), name="api-plan-pause"),
    path(f"{PLAN}resume/", api.PlanResume.as_view(), name="api-plan-resume"),
    path(f"{PLAN}input/", changes_api.PlanInput.as_view(), name="api-plan-input"),
    path(f"{PLAN}retry/", changes_api.PlanRetry.as_view(), name="api-plan-retry"),
    path(f"{PLAN}clone/", changes_api.PlanClone.as_view(), name="api-plan-clone"),
    path(f"{PLAN}cancel/", api.PlanCancel.as_view(), name="api-plan-cancel"),
    path(f"{PLAN}steps/<int:step_id>/skip/", changes_api.StepSkip.as_view(), name="api-step-skip"),
    path(f"{PLAN}steps/<int:step_id>/outcome/", api.StepOutcome.as_view(), name="api-step-outcome"),
    path("sessions/", sessions_api.SessionListEndpoint.as_view(), name="api-sessions"),
    path("sessions/<slug:public_id>/", sessions_api.SessionDetail.as_view(), name="api-session"),
    path("agents/", agents_api.AgentList.as_view(), name="api-agents"),
    path("agents/<slug:public_id>/", agents_api.AgentDetail.as_view(), name="api-agent"),
    path("calls/", calls_api.CallList.as_view(), name="api-calls"),
    path("calls/<slug:public_id>/", calls_api.CallDetail.as_view(), name="api-call"),
    path("calls/<slug:public_id>/reveal/", calls_api.CallReveal.as_view(), name="api-call-reveal"),
]
