"""Where the plan pages are, under /plans/."""

from django.urls import path

from catalog.converters import PUBLIC_ID, STEP_ID
from plans import changes_views, inputs_views, model_uses_views, slice_views, views

STEP = f"{PUBLIC_ID}/steps/{STEP_ID}"
urlpatterns = [
    path("", views.plans, name="plans"),
    path("new/", views.new, name="plan-new"),
    path(f"{PUBLIC_ID}/", views.plan, name="plan"),
    path(f"{PUBLIC_ID}/start/", views.start, name="plan-start"),
    path(f"{PUBLIC_ID}/pause/", views.pause, name="plan-pause"),
    path(f"{PUBLIC_ID}/resume/", views.resume, name="plan-resume"),
    path(f"{PUBLIC_ID}/retry/", changes_views.retry, name="plan-retry"),
    path(f"{PUBLIC_ID}/clone/", changes_views.clone, name="plan-clone"),
    path(f"{PUBLIC_ID}/change/", changes_views.change, name="plan-change"),
    path(f"{PUBLIC_ID}/prompts/", model_uses_views.prompts, name="plan-prompts"),
    path(f"{PUBLIC_ID}/slice/", slice_views.plan_slice, name="plan-slice"),
    path(f"{PUBLIC_ID}/cancel/", views.cancel, name="plan-cancel"),
    path(f"{PUBLIC_ID}/values/<str:key>/", views.value, name="plan-value"),
    path(f"{STEP}/outcome/", views.outcome, name="plan-outcome"),
    path(f"{STEP}/input/", inputs_views.arguments, name="plan-input"),
    path(f"{STEP}/answer/", inputs_views.give_answer, name="plan-answer"),
    path(f"{STEP}/skip/", changes_views.skip, name="plan-skip"),
    path(f"{STEP}/reveal/", views.reveal, name="plan-reveal"),
    path(f"{STEP}/<slug:name>/", views.part, name="plan-part"),
]
