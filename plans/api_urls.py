"""The plan and call paths of the REST API."""

from django.urls import path, register_converter

from catalog.converters import Name, Number
from plans import api, calls_api

register_converter(Name, "name")
register_converter(Number, "number")

PLAN = "plans/<name:public_id>/"
urlpatterns = [
    path("plans/", api.PlanList.as_view(), name="api-plans"),
    path("plans/check/", api.PlanCheck.as_view(), name="api-plan-check"),
    path(PLAN, api.PlanDetail.as_view(), name="api-plan"),
    path(f"{PLAN}memory/", api.PlanMemory.as_view(), name="api-plan-memory"),
    path(f"{PLAN}events/", api.PlanEvents.as_view(), name="api-plan-events"),
    path(f"{PLAN}start/", api.PlanStart.as_view(), name="api-plan-start"),
    path(f"{PLAN}cancel/", api.PlanCancel.as_view(), name="api-plan-cancel"),
    path(f"{PLAN}steps/<number:step_id>/outcome/", api.StepOutcome.as_view(), name="api-step-outcome"),
    path("calls/", calls_api.CallList.as_view(), name="api-calls"),
    path("calls/<name:public_id>/", calls_api.CallDetail.as_view(), name="api-call"),
]
