"""The approval and audit paths of the REST API."""

from django.urls import path

from approvals import api
from catalog.converters import PUBLIC_ID

APPROVAL = f"approvals/{PUBLIC_ID}/"
urlpatterns = [
    path("approvals/", api.ApprovalList.as_view(), name="api-approvals"),
    path(APPROVAL, api.ApprovalDetail.as_view(), name="api-approval"),
    path(f"{APPROVAL}reviews/", api.ApprovalReviews.as_view(), name="api-approval-reviews"),
    path(f"{APPROVAL}undo/", api.ApprovalUndo.as_view(), name="api-approval-undo"),
    path(f"{APPROVAL}withdraw/", api.ApprovalWithdraw.as_view(), name="api-approval-withdraw"),
    path("audit/", api.AuditList.as_view(), name="api-audit"),
    path("audit/verify/", api.AuditVerify.as_view(), name="api-audit-verify"),
]
