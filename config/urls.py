"""Every URL of the product, mounted from the three layers."""

from django.contrib import admin
from django.urls import include, path

from config.health import healthz, readyz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("api/v1/", include("config.api")),
    path("admin/", admin.site.urls),
]
