"""Where the pages of approvals and of the audit log are."""

from django.urls import path

from approvals import (
    audit_views,
    grant_views,
    insights_views,
    notification_views,
    policy_views,
    revealing_views,
    several_views,
    views,
)

urlpatterns = [
    path("approvals/", views.inbox, name="approvals"),
    path("approvals/insights/", insights_views.insights, name="insights"),
    path("approvals/several/", several_views.several, name="several"),
    path("approvals/grants/", grant_views.grants, name="grants"),
    path("approvals/grants/<slug:public_id>/revoke/", grant_views.revoke_grant, name="grant-revoke"),
    path("approvals/<slug:public_id>/grant/", grant_views.grant_from, name="grant-from"),
    path("approvals/<slug:public_id>/decision/", views.decision, name="decision"),
    path("approvals/<slug:public_id>/edit/", views.edit, name="edit"),
    path("approvals/<slug:public_id>/undo/", views.undo, name="undo"),
    path("approvals/<slug:public_id>/result/", views.result, name="approval-result"),
    path("approvals/<slug:public_id>/reveal/", revealing_views.reveal, name="approval-reveal"),
    path("approvals/<slug:public_id>/<slug:name>/", views.action, name="act"),
    path("policies/", policy_views.policies_list, name="policies"),
    path("policies/new/", policy_views.new, name="policy-new"),
    path("policies/sentence/", policy_views.sentence, name="policy-sentence"),
    path("policies/simulator/", policy_views.simulator, name="policy-simulator"),
    path("policies/<slug:public_id>/", policy_views.policy, name="policy"),
    path("policies/<slug:public_id>/act/", policy_views.policy_act, name="policy-act"),
    path("audit/", audit_views.log, name="audit"),
    path("audit/export/", audit_views.export, name="audit-export"),
    path("audit/deliveries/", notification_views.deliveries, name="deliveries"),
    path("audit/deliveries/<int:number>/retry/", notification_views.retry, name="delivery-retry"),
    path("profile/notifications/", notification_views.choice, name="notifications"),
]
