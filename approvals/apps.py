"""The approvals application."""

from django.apps import AppConfig

from catalog.signals import fact


class ApprovalsConfig(AppConfig):
    name = "approvals"

    def ready(self) -> None:
        from django.contrib.auth import signals  # noqa: PLC0415 (models are loaded only now)
        from django.contrib.auth.models import Group, User  # noqa: PLC0415 (as above)
        from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save  # noqa: PLC0415 (as above)

        from approvals.audit import accounts, checkpoints  # noqa: PLC0415 (as above)
        from approvals.audit.log import on_fact  # noqa: PLC0415 (as above)
        from approvals.envelopes import coverage as envelope_coverage  # noqa: PLC0415 (as above)
        from approvals.grants import coverage  # noqa: PLC0415 (as above)
        from approvals.notifications import devices, outbox  # noqa: PLC0415 (as above)
        from approvals.policies import group_use  # noqa: PLC0415 (as above)
        from approvals.reviews import coordination  # noqa: PLC0415 (as above)
        from catalog.access import people, sessions, sign_in  # noqa: PLC0415 (as above)
        from catalog.tools import registry  # noqa: PLC0415 (as above)

        registry.register_module("approvals.envelopes.tool", lambda: True)
        fact.connect(on_fact, dispatch_uid="approvals.audit.log")
        fact.connect(checkpoints.on_fact, dispatch_uid="approvals.audit.checkpoints")
        fact.connect(outbox.on_fact, dispatch_uid="approvals.notifications.outbox")
        fact.connect(coverage.on_fact, dispatch_uid="approvals.grants.coverage")
        fact.connect(envelope_coverage.on_fact, dispatch_uid="approvals.envelopes.coverage")
        fact.connect(group_use.on_fact, dispatch_uid="approvals.policies.group_use")
        people.access_ended.connect(coordination.on_access_ended, dispatch_uid="approvals.reviews.coordination")
        signals.user_logged_in.connect(accounts.on_sign_in, dispatch_uid="approvals.audit.accounts")
        signals.user_logged_out.connect(accounts.on_sign_out, dispatch_uid="approvals.audit.accounts")
        signals.user_login_failed.connect(accounts.on_failed_sign_in, dispatch_uid="approvals.audit.accounts")
        sign_in.sign_in_refused.connect(accounts.on_refused_sign_in, dispatch_uid="approvals.audit.accounts")
        m2m_changed.connect(accounts.on_groups_change, User.groups.through, dispatch_uid="approvals.audit.accounts")
        pre_save.connect(accounts.before_account_save, User, dispatch_uid="approvals.audit.accounts")
        post_save.connect(accounts.after_account_save, User, dispatch_uid="approvals.audit.accounts")
        pre_delete.connect(accounts.before_account_delete, User, dispatch_uid="approvals.audit.accounts")
        post_save.connect(accounts.after_role_save, Group, dispatch_uid="approvals.audit.accounts")
        pre_delete.connect(accounts.before_group_delete, Group, dispatch_uid="approvals.audit.accounts")
        post_delete.connect(accounts.after_group_delete, Group, dispatch_uid="approvals.audit.accounts")
        signals.user_logged_out.connect(devices.on_sign_out, dispatch_uid="approvals.notifications.devices")
        sessions.sessions_ended.connect(devices.on_sessions_ended, dispatch_uid="approvals.notifications.devices")
        post_save.connect(devices.on_account_save, User, dispatch_uid="approvals.notifications.devices")
        for through in (User.user_permissions.through, Group.permissions.through):
            m2m_changed.connect(accounts.on_permissions_change, through, dispatch_uid="approvals.audit.accounts")
