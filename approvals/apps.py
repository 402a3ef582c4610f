"""The approvals application."""

from django.apps import AppConfig

from catalog.facts import fact


class ApprovalsConfig(AppConfig):
    """Who must say yes."""

    name = "approvals"

    def ready(self) -> None:
        """Let the audit log keep what it must."""
        from django.contrib.auth import signals  # noqa: PLC0415 (models are loaded only now)

        from approvals import sign_ins  # noqa: PLC0415 (as above)
        from approvals.audit import on_fact  # noqa: PLC0415 (as above)

        fact.connect(on_fact, dispatch_uid="approvals.audit")
        signals.user_logged_in.connect(sign_ins.on_sign_in, dispatch_uid="approvals.sign_ins")
        signals.user_logged_out.connect(sign_ins.on_sign_out, dispatch_uid="approvals.sign_ins")
        signals.user_login_failed.connect(sign_ins.on_failure, dispatch_uid="approvals.sign_ins")
