"""Every URL of the product, mounted from the three layers."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from config.operations.health import healthz, readyz
from config.operations.metrics import metrics
from config.views import SignIn, admin_sign_in, home

handler500 = "config.views.broken"

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("", home, name="home"),
    path("sign-in/", SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("tools/", include("catalog.web.urls")),
    path("tools/", include("plans.trying_urls")),
    path("", include("approvals.urls")),
    path("ask/", include("plans.ask_urls")),
    path("plans/", include("plans.urls")),
    path("agents/", include("plans.agents.urls")),
    path("sessions/", include("plans.session_urls")),
    path("api/v1/", include("config.api")),
    path("admin/login/", admin_sign_in),
    path("admin/", admin.site.urls),
]
