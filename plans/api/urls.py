"""URLs of the REST endpoints of plans, slices, sessions, agents and calls."""

from django.urls import path

from plans.api import agents as agents_api
from plans.api import calls, deferred, drafts, envelopes, hooks, permissions, plans, sessions, slices

PLAN = "plans/<slug:public_id>/"
urlpatterns = [
    path("approvals/slice/", slices.SliceApproval.as_view(), name="api-slice"),
    path("approvals/slice/preview/", slices.SlicePreview.as_view(), name="api-slice-preview"),
    path("plans/", plans.PlanListEndpoint.as_view(), name="api-plans"),
    path("plans/check/", plans.PlanCheck.as_view(), name="api-plan-check"),
    path("plans/draft/", drafts.DraftList.as_view(), name="api-plan-drafts"),
    path("plans/draft/<slug:public_id>/", drafts.DraftDetail.as_view(), name="api-plan-draft"),
    path("plans/draft/<slug:public_id>/start/", drafts.DraftStart.as_view(), name="api-plan-draft-start"),
    path(PLAN, plans.PlanDetail.as_view(), name="api-plan"),
    path(f"{PLAN}memory/", plans.PlanMemory.as_view(), name="api-plan-memory"),
    path(f"{PLAN}events/", plans.PlanEvents.as_view(), name="api-plan-events"),
    path(f"{PLAN}prompts/", plans.PlanPrompts.as_view(), name="api-plan-prompts"),
    path(f"{PLAN}start/", plans.PlanStart.as_view(), name="api-plan-start"),
    path(f"{PLAN}pause/", plans.PlanPause.as_view(), name="api-plan-pause"),
    path(f"{PLAN}resume/", plans.PlanResume.as_view(), name="api-plan-resume"),
    path(f"{PLAN}input/", plans.PlanInput.as_view(), name="api-plan-input"),
    path(f"{PLAN}retry/", plans.PlanRetry.as_view(), name="api-plan-retry"),
    path(f"{PLAN}clone/", plans.PlanClone.as_view(), name="api-plan-clone"),
    path(f"{PLAN}cancel/", plans.PlanCancel.as_view(), name="api-plan-cancel"),
    path(f"{PLAN}steps/<number:step_id>/skip/", plans.StepSkip.as_view(), name="api-step-skip"),
    path(f"{PLAN}steps/<number:step_id>/outcome/", plans.StepOutcome.as_view(), name="api-step-outcome"),
    path("sessions/", sessions.SessionListEndpoint.as_view(), name="api-sessions"),
    path("sessions/<slug:public_id>/", sessions.SessionDetail.as_view(), name="api-session"),
    path("agents/", agents_api.AgentList.as_view(), name="api-agents"),
    path("agents/<slug:public_id>/", agents_api.AgentDetail.as_view(), name="api-agent"),
    path("permissions/", permissions.PermissionList.as_view(), name="api-permissions"),
    path("permissions/<slug:public_id>/result/", permissions.PermissionResult.as_view(), name="api-permission-result"),
    path("permissions/deferred/", deferred.DeferredList.as_view(), name="api-deferred"),
    path("permissions/<slug:public_id>/resumed/", deferred.DeferredResumed.as_view(), name="api-resumed"),
    path("hooks/<slug:client>/", hooks.HookEndpoint.as_view(), name="api-hook"),
    path("envelopes/", envelopes.EnvelopeList.as_view(), name="api-envelopes"),
    path("envelopes/<slug:public_id>/", envelopes.EnvelopeDetail.as_view(), name="api-envelope"),
    path("envelopes/<slug:public_id>/end/", envelopes.EnvelopeEnd.as_view(), name="api-envelope-end"),
    path("calls/", calls.CallList.as_view(), name="api-calls"),
    path("tools/<slug:name>/preview/", calls.CallPreview.as_view(), name="api-tool-preview"),
    path("calls/<slug:public_id>/", calls.CallDetail.as_view(), name="api-call"),
    path("calls/<slug:public_id>/content/<number:number>/", calls.CallContent.as_view(), name="api-call-content"),
    path("calls/<slug:public_id>/reveal/", calls.CallReveal.as_view(), name="api-call-reveal"),
]
