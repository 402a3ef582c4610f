"""The approvals application."""

from django.apps import AppConfig

from catalog.signals import fact


class ApprovalsConfig(AppConfig):
    """Who must say yes."""

    name = "approvals"

    def ready(self) -> None:
        """Let the audit log keep what it must."""
        from django.contrib.auth import signals  # noqa: PLC0415 (models are loaded only now)
        from django.contrib.auth.models import Group, User  # noqa: PLC0415 (as above)
        from django.db.models.signals import m2m_changed, post_save, pre_delete, pre_save  # noqa: PLC0415 (as above)

        from approvals import grant_uses, notify, roles, sign_ins, witness  # noqa: PLC0415 (as above)
        from approvals.audit import on_fact  # noqa: PLC0415 (as above)
        from catalog.access import sign_in  # noqa: PLC0415 (as above)

        fact.connect(on_fact, dispatch_uid="approvals.audit")
        fact.connect(witness.on_fact, dispatch_uid="approvals.witness")
        fact.connect(notify.on_fact, dispatch_uid="approvals.notify")
        fact.connect(grant_uses.on_fact, dispatch_uid="approvals.grant_uses")
        signals.user_logged_in.connect(sign_ins.on_sign_in, dispatch_uid="approvals.sign_ins")
        signals.user_logged_out.connect(sign_ins.on_sign_out, dispatch_uid="approvals.sign_ins")
        signals.user_login_failed.connect(sign_ins.on_failure, dispatch_uid="approvals.sign_ins")
        sign_in.refused.connect(sign_ins.on_refusal, dispatch_uid="approvals.sign_ins")
        m2m_changed.connect(roles.on_groups, User.groups.through, dispatch_uid="approvals.roles")
        pre_save.connect(roles.before_save, User, dispatch_uid="approvals.roles")
        post_save.connect(roles.after_save, User, dispatch_uid="approvals.roles")
        pre_delete.connect(roles.before_account_goes, User, dispatch_uid="approvals.roles")
        pre_delete.connect(roles.before_group_goes, Group, dispatch_uid="approvals.roles")
