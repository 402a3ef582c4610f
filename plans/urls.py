"""Where the plan pages are, under /plans/."""

from django.urls import path

from plans import changes_views, inputs_views, model_uses_views, slice_views, views

STEP = "<slug:public_id>/steps/<int:step_id>"
urlpatterns = [
    path("", views.plans, name="plans"),
    path("new/", views.new, name="plan-new"),
    path("<slug:public_id>/", views.plan, name="plan"),
    path("<slug:public_id>/start/", views.start, name="plan-start"),
    path("<slug:public_id>/pause/", views.pause, name="plan-pause"),
    path("<slug:public_id>/resume/", views.resume, name="plan-resume"),
    path("<slug:public_id>/retry/", changes_views.retry, name="plan-retry"),
    path("<slug:public_id>/clone/", changes_views.clone, name="plan-clone"),
    path("<slug:public_id>/change/", changes_views.change, name="plan-change"),
    path("<slug:public_id>/prompts/", model_uses_views.prompts, name="plan-prompts"),
    path("<slug:public_id>/slice/", slice_views.plan_slice, name="plan-slice"),
    path("<slug:public_id>/cancel/", views.cancel, name="plan-cancel"),
    path("<slug:public_id>/values/<str:key>/", views.value, name="plan-value"),
    path(f"{STEP}/outcome/", views.outcome, name="plan-outcome"),
    path(f"{STEP}/input/", inputs_views.arguments, name="plan-input"),
    path(f"{STEP}/answer/", inputs_views.give_answer, name="plan-answer"),
    path(f"{STEP}/skip/", changes_views.skip, name="plan-skip"),
    path(f"{STEP}/reveal/", views.reveal, name="plan-reveal"),
    path(f"{STEP}/<slug:name>/", views.part, name="plan-part"),
]
