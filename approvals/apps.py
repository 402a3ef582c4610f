"""The approvals application."""

from django.apps import AppConfig

from catalog.facts import fact


class ApprovalsConfig(AppConfig):
    """Who must say yes."""

    name = "approvals"

    def ready(self) -> None:
        """Let the audit log keep what it must."""
        from approvals.audit import on_fact  # noqa: PLC0415 (models are loaded only now)

        fact.connect(on_fact, dispatch_uid="approvals.audit")
