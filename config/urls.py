"""Every URL of the product, mounted from the three layers."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("config.api")),
    path("admin/", admin.site.urls),
]
