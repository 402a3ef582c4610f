"""The approval and audit paths of the REST API."""

from django.urls import path

from approvals import api, desk_api, grants_api, insights_api, notifications_api, policies_api, revealing_api

APPROVAL = "approvals/<slug:public_id>/"
urlpatterns = [
    path("approvals/", api.ApprovalList.as_view(), name="api-approvals"),
    path("approvals/batch/", desk_api.ApprovalBatch.as_view(), name="api-approvals-batch"),
    path(APPROVAL, api.ApprovalDetail.as_view(), name="api-approval"),
    path(f"{APPROVAL}reviews/", api.ApprovalReviews.as_view(), name="api-approval-reviews"),
    path(f"{APPROVAL}undo/", api.ApprovalUndo.as_view(), name="api-approval-undo"),
    path(f"{APPROVAL}revoke/", api.ApprovalRevoke.as_view(), name="api-approval-revoke"),
    path(f"{APPROVAL}withdraw/", api.ApprovalWithdraw.as_view(), name="api-approval-withdraw"),
    path(f"{APPROVAL}claim/", desk_api.ApprovalClaim.as_view(), name="api-approval-claim"),
    path(f"{APPROVAL}release/", desk_api.ApprovalRelease.as_view(), name="api-approval-release"),
    path(f"{APPROVAL}extend/", desk_api.ApprovalExtend.as_view(), name="api-approval-extend"),
    path(f"{APPROVAL}snooze/", desk_api.ApprovalSnooze.as_view(), name="api-approval-snooze"),
    path(f"{APPROVAL}delegate/", desk_api.ApprovalDelegate.as_view(), name="api-approval-delegate"),
    path(f"{APPROVAL}comments/", desk_api.ApprovalComments.as_view(), name="api-approval-comments"),
    path(f"{APPROVAL}reveal/", revealing_api.ApprovalReveal.as_view(), name="api-approval-reveal"),
    path("grants/", grants_api.GrantList.as_view(), name="api-grants"),
    path("grants/<slug:public_id>/", grants_api.GrantDetail.as_view(), name="api-grant"),
    path("insights/", insights_api.InsightsDetail.as_view(), name="api-insights"),
    path("audit/", api.AuditList.as_view(), name="api-audit"),
    path("audit/deliveries/", notifications_api.DeliveryList.as_view(), name="api-deliveries"),
    path("audit/deliveries/<int:number>/retry/", notifications_api.DeliveryRetry.as_view(), name="api-delivery-retry"),
    path("notifications/", notifications_api.NotificationsDetail.as_view(), name="api-notifications"),
    path("notifications/deliveries/", notifications_api.OwnDeliveries.as_view(), name="api-own-deliveries"),
    path("audit/verify/", api.AuditVerify.as_view(), name="api-audit-verify"),
    path("policies/", policies_api.PolicyList.as_view(), name="api-policies"),
    path("policies/simulate/", policies_api.PolicySimulate.as_view(), name="api-policies-simulate"),
    path("policies/back-test/", policies_api.PolicyBackTest.as_view(), name="api-policies-back-test"),
    path("policies/<slug:public_id>/", policies_api.PolicyDetail.as_view(), name="api-policy"),
]
