"""URLs of the REST endpoints of approvals, grants, stops, policies, people, notifications and the audit log."""

from django.urls import path

from approvals.api import audit, grants, insights, notifications, people, policies, requests, stops

APPROVAL = "approvals/<slug:public_id>/"
urlpatterns = [
    path("approvals/", requests.ApprovalList.as_view(), name="api-approvals"),
    path("approvals/batch/", requests.ApprovalBatch.as_view(), name="api-approvals-batch"),
    path(APPROVAL, requests.ApprovalDetail.as_view(), name="api-approval"),
    path(f"{APPROVAL}reviews/", requests.ApprovalReviews.as_view(), name="api-approval-reviews"),
    path(f"{APPROVAL}undo/", requests.ApprovalUndo.as_view(), name="api-approval-undo"),
    path(f"{APPROVAL}revoke/", requests.ApprovalRevoke.as_view(), name="api-approval-revoke"),
    path(f"{APPROVAL}withdraw/", requests.ApprovalWithdraw.as_view(), name="api-approval-withdraw"),
    path(f"{APPROVAL}claim/", requests.ApprovalClaim.as_view(), name="api-approval-claim"),
    path(f"{APPROVAL}release/", requests.ApprovalRelease.as_view(), name="api-approval-release"),
    path(f"{APPROVAL}extend/", requests.ApprovalExtend.as_view(), name="api-approval-extend"),
    path(f"{APPROVAL}snooze/", requests.ApprovalSnooze.as_view(), name="api-approval-snooze"),
    path(f"{APPROVAL}delegate/", requests.ApprovalDelegate.as_view(), name="api-approval-delegate"),
    path(f"{APPROVAL}comments/", requests.ApprovalComments.as_view(), name="api-approval-comments"),
    path(f"{APPROVAL}reveal/", requests.ApprovalReveal.as_view(), name="api-approval-reveal"),
    path("grants/", grants.GrantList.as_view(), name="api-grants"),
    path("grants/<slug:public_id>/", grants.GrantDetail.as_view(), name="api-grant"),
    path("insights/", insights.InsightsDetail.as_view(), name="api-insights"),
    path("audit/", audit.AuditList.as_view(), name="api-audit"),
    path("audit/deliveries/", notifications.DeliveryList.as_view(), name="api-deliveries"),
    path("audit/deliveries/<number:number>/retry/", notifications.DeliveryRetry.as_view(), name="api-delivery-retry"),
    path("notifications/", notifications.NotificationsDetail.as_view(), name="api-notifications"),
    path("notifications/deliveries/", notifications.OwnDeliveries.as_view(), name="api-own-deliveries"),
    path("audit/export/", audit.AuditExport.as_view(), name="api-audit-export"),
    path("audit/verify/", audit.AuditVerify.as_view(), name="api-audit-verify"),
    path("people/", people.PersonList.as_view(), name="api-people"),
    path("people/<str:username>/", people.PersonDetail.as_view(), name="api-person"),
    path("people/<str:username>/reset/", people.PersonReset.as_view(), name="api-person-reset"),
    path("groups/", people.GroupList.as_view(), name="api-groups"),
    path("groups/<str:name>/", people.GroupDetail.as_view(), name="api-group"),
    path("stops/", stops.StopList.as_view(), name="api-stops"),
    path("stops/<slug:public_id>/", stops.StopDetail.as_view(), name="api-stop"),
    path("policies/", policies.PolicyList.as_view(), name="api-policies"),
    path("policies/simulate/", policies.PolicySimulate.as_view(), name="api-policies-simulate"),
    path("policies/sentence/", policies.PolicyInWords.as_view(), name="api-policies-sentence"),
    path("policies/back-test/", policies.PolicyBackTest.as_view(), name="api-policies-back-test"),
    path("policies/<slug:public_id>/trial/", policies.PolicyTrial.as_view(), name="api-policy-trial"),
    path("policies/<slug:public_id>/", policies.PolicyDetail.as_view(), name="api-policy"),
]
