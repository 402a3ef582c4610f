"""Plan slices in the REST API, under approvals/slice/: requests are made and decided there, of steps of a plan."""

from django.urls import path

from plans import slices_api

urlpatterns = [
    path("", slices_api.SliceApproval.as_view(), name="api-slice"),
    path("preview/", slices_api.SlicePreview.as_view(), name="api-slice-preview"),
]
