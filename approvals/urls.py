"""Where the pages of approvals and of the audit log are."""

from django.urls import path

from approvals import audit_views, views

urlpatterns = [
    path("approvals/", views.inbox, name="approvals"),
    path("approvals/<slug:public_id>/decision/", views.decision, name="decision"),
    path("approvals/<slug:public_id>/undo/", views.undo, name="undo"),
    path("audit/", audit_views.log, name="audit"),
]
