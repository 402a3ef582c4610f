"""URL patterns of the pages of approvals, policies, notifications and the audit log."""

from django.urls import path

from approvals.web import audit, connections, grants, groups, insights, notifications, people, request_list
from approvals.web.policies import views as policies_views
from approvals.web.review import views as review_views

urlpatterns = [
    path("approvals/", review_views.inbox, name="approvals"),
    path("approvals/decided/", request_list.decided_requests, name="decided"),
    path("approvals/insights/", insights.insights, name="insights"),
    path("approvals/undo/", review_views.undo_several, name="undo-several"),
    path("approvals/several/", review_views.batch_review, name="several"),
    path("approvals/grants/", grants.grants, name="grants"),
    path("approvals/grants/<slug:public_id>/revoke/", grants.revoke_grant_page, name="grant-revoke"),
    path("approvals/<slug:public_id>/grant/", grants.propose_grant_page, name="grant-from"),
    path("approvals/<slug:public_id>/change/", review_views.change_rows, name="change-rows"),
    path("approvals/<slug:public_id>/decision/sign/", review_views.sign_decision, name="decision-sign"),
    path("approvals/<slug:public_id>/decision/", review_views.decision, name="decision"),
    path("approvals/<slug:public_id>/edit/", review_views.edit, name="edit"),
    path("approvals/<slug:public_id>/undo/", review_views.undo, name="undo"),
    path("approvals/<slug:public_id>/result/", review_views.result, name="approval-result"),
    path("approvals/<slug:public_id>/reveal/", review_views.reveal, name="approval-reveal"),
    path("approvals/<slug:public_id>/<slug:name>/", review_views.action, name="act"),
    path("policies/", policies_views.policies_list, name="policies"),
    path("policies/coding-agent/", policies_views.coding_agent_policies, name="policies-coding-agent"),
    path("policies/after-reading/", policies_views.reading_policy, name="policies-after-reading"),
    path("policies/new/", policies_views.new_policy, name="policy-new"),
    path("policies/sentence/", policies_views.sentence, name="policy-sentence"),
    path("policies/simulator/", policies_views.simulator, name="policy-simulator"),
    path("policies/<slug:public_id>/", policies_views.policy, name="policy"),
    path("policies/<slug:public_id>/act/", policies_views.policy_action, name="policy-act"),
    path("people/", people.people_list, name="people"),
    path("people/new/", people.new_person, name="person-new"),
    path("people/<number:number>/", people.person, name="person"),
    path("people/<number:number>/access/", people.change_access, name="person-access"),
    path("groups/", groups.group_list, name="groups"),
    path("groups/new/", groups.new_group, name="group-new"),
    path("groups/<number:number>/", groups.group, name="group"),
    path("groups/<number:number>/change/", groups.change_group, name="group-change"),
    path("audit/", audit.audit_log, name="audit"),
    path("audit/export/", audit.export_audit_log, name="audit-export"),
    path("audit/deliveries/", notifications.deliveries, name="deliveries"),
    path("audit/deliveries/<number:number>/retry/", notifications.retry_delivery_page, name="delivery-retry"),
    path("profile/notifications/", notifications.preferences, name="notifications"),
    path("profile/notifications/devices/", notifications.add_push_device, name="push-devices"),
    path("profile/notifications/devices/<number:number>/", notifications.push_device_action, name="push-device"),
    path("connections/", connections.connection_list, name="connections"),
    path("connections/<number:number>/", connections.connection_detail, name="connection"),
    path("connections/<number:number>/limits/", connections.change_connection, name="connection-limits"),
    path("connections/<number:number>/end/", connections.end_connection_page, name="connection-end"),
    path("connections/clients/<number:number>/", connections.permit_client, name="client-permit"),
]
