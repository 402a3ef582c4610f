"""Audit entries about accounts: sign-ins, roles added and removed, accounts created, changed, disabled or deleted.

`groups_held_long_enough` reads these entries to find out how long a user has had a role.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User
from django.http import HttpRequest

from approvals.audit.log import AuditRecord, append_entry
from approvals.audit.rights import row_digest
from approvals.models import AuditEntry
from catalog.access.people import acting_user
from catalog.access.roles import SIGNED_IN_AT_KEY
from catalog.access.sign_in import client_address
from catalog.core import clock

if TYPE_CHECKING:
    from django.db.models import Model


GIVEN, TAKEN, DELETED = "role.given", "role.taken", "role.deleted"
GROUP_CHANGE_ACTIONS = {"post_add": GIVEN, "post_remove": TAKEN, "post_clear": TAKEN}
SUPERUSER = "superuser"
AUDITED_FLAGS = ("is_active", "is_superuser")
AUDITED_FIELDS = ("username", "password", "is_staff", "first_name", "last_name", "email")
"""Fields whose changes are audited; a password also changes when it is hashed anew at sign-in."""


def on_groups_change(
    sender: object, *, instance: "Model", action: str, pk_set: Iterable[int] | None, **kwargs: Any
) -> None:
    """Record the groups that users joined or left; `instance` is a user or a group."""
    if action == "pre_clear":  # after the clear, the members are unknown
        instance._toolgate_cleared = list(_changed_memberships(instance, None))  # type: ignore[attr-defined]
    if action not in GROUP_CHANGE_ACTIONS:
        return
    is_cleared = action == "post_clear"
    changed = instance._toolgate_cleared if is_cleared else _changed_memberships(instance, pk_set)  # type: ignore[attr-defined]
    for person, names in changed:
        if names:
            _append_account_entry(GROUP_CHANGE_ACTIONS[action], person, roles=names)


def on_permissions_change(sender: object, *, instance: "Model", action: str, **kwargs: Any) -> None:
    if action not in GROUP_CHANGE_ACTIONS:
        return
    if isinstance(instance, Group):
        _append_role_entry("role.changed", instance, fields=["permissions"])
    elif isinstance(instance, User):
        _append_account_entry("account.changed", instance, fields=["permissions"])


def _changed_memberships(instance: "Model", pks: Iterable[int] | None) -> Iterator[tuple[User, list[str]]]:
    """Yield users with the names of their changed groups; `pks` None means all."""
    if isinstance(instance, Group):
        people = instance.user_set.all() if pks is None else User.objects.filter(pk__in=list(pks))
        for person in people:
            yield person, [instance.name]
    elif isinstance(instance, User):
        groups = instance.groups.all() if pks is None else Group.objects.filter(pk__in=list(pks))
        yield instance, sorted(group.name for group in groups)


def before_account_save(
    sender: object, *, instance: User, raw: bool, update_fields: Iterable[str] | None, **kwargs: Any
) -> None:
    """Remember an account's audited fields as stored, so that `after_account_save` can record the changes."""
    audited = (*AUDITED_FLAGS, *AUDITED_FIELDS)
    instance._toolgate_before = None  # type: ignore[attr-defined] # an attribute of the instance, not a field
    if not raw and (update_fields is None or set(audited).intersection(update_fields)):
        known = User.objects.filter(pk=instance.pk).values(*audited).first()
        instance._toolgate_before = known or {"is_active": True, "is_superuser": False}  # type: ignore[attr-defined]


def after_account_save(sender: object, *, instance: User, created: bool, **kwargs: Any) -> None:
    """Record that an account was created, changed, enabled or disabled, or became or ceased to be a superuser."""
    before = instance._toolgate_before  # type: ignore[attr-defined] # set by before_account_save
    if before is None:
        return
    changed = [] if created else [name for name in AUDITED_FIELDS if before[name] != getattr(instance, name)]
    if created:
        _append_account_entry("account.created", instance)
    elif changed:
        _append_account_entry("account.changed", instance, fields=changed)
    if before["is_active"] != instance.is_active:
        _append_account_entry("account.switched_on" if instance.is_active else "account.switched_off", instance)
    if before["is_superuser"] != instance.is_superuser:
        _append_account_entry(GIVEN if instance.is_superuser else TAKEN, instance, roles=[SUPERUSER])


def before_account_delete(sender: object, *, instance: User, **kwargs: Any) -> None:
    roles = sorted(group.name for group in instance.groups.all())
    roles += [SUPERUSER] if instance.is_superuser else []
    _append_account_entry("account.deleted", instance, roles=roles, row={"account": None})


def after_role_save(sender: object, *, instance: Group, raw: bool, created: bool, **kwargs: Any) -> None:
    if not raw:
        _append_role_entry("role.created" if created else "role.changed", instance)


def before_group_delete(sender: object, *, instance: Group, **kwargs: Any) -> None:
    """Remember the members of a group, since Django sends no signal for the roles that they lose with it."""
    instance._toolgate_cleared = list(_changed_memberships(instance, None))  # type: ignore[attr-defined]


def after_group_delete(sender: object, *, instance: Group, **kwargs: Any) -> None:
    """Record that a group was deleted, and that each of its members lost the role."""
    for person, names in instance._toolgate_cleared:  # type: ignore[attr-defined] # set by before_group_delete
        _append_account_entry(TAKEN, person, roles=names)
    _append_role_entry(DELETED, instance, row={"role": None})


def _append_role_entry(action: str, group: Group, **details: Any) -> None:
    ref = f"group_{group.pk}"
    entry_details = {"roles": [group.name], **row_digest("role", ref), **details}
    append_entry(AuditRecord(action=action, by=acting_user(), object_ref=ref, details=entry_details))


def _append_account_entry(action: str, person: User, **details: Any) -> None:
    entry_details = {"person": person.get_username(), **row_digest("account", _ref(person)), **details}
    append_entry(AuditRecord(action=action, by=acting_user(), object_ref=_ref(person), details=entry_details))


def on_sign_in(sender: object, *, request: HttpRequest, user: "User", **kwargs: Any) -> None:
    """Record a sign-in, and store its time in the session for rules that require a recent sign-in."""
    request.session[SIGNED_IN_AT_KEY] = clock.now().timestamp()
    append_entry(AuditRecord(action="sign_in.succeeded", by=user, object_ref=_ref(user), details=_origin(request)))


def on_sign_out(sender: object, *, request: HttpRequest, user: "User | None", **kwargs: Any) -> None:
    """Record a sign-out; `user` is None if there was no session."""
    if user is not None:
        append_entry(AuditRecord(action="sign_in.ended", by=user, object_ref=_ref(user), details=_origin(request)))


def on_failed_sign_in(
    sender: object, *, credentials: Mapping[str, Any], request: HttpRequest | None = None, **kwargs: Any
) -> None:
    """Record a failed sign-in. An unknown username is left out, since it may be a password typed by mistake."""
    _append_sign_in_entry("sign_in.failed", str(credentials.get("username", "")), _origin(request))


def on_refused_sign_in(sender: object, *, request: HttpRequest, username: str, retry_after: int, **kwargs: Any) -> None:
    """Record that further sign-in attempts are blocked for a while; called once per block."""
    _append_sign_in_entry("sign_in.refused", username, {**_origin(request), "retry_after": retry_after})


def _append_sign_in_entry(action: str, username: str, details: Mapping[str, Any]) -> None:
    user = get_user_model().objects.filter(username=username).first()
    record = AuditRecord(
        action=action,
        actor_name=user.get_username() if user else "unknown",
        object_ref=_ref(user) if user else "",
        details=details,
    )
    append_entry(record)


def _ref(user: "User") -> str:
    return f"user_{user.pk}"


def _origin(request: HttpRequest | None) -> dict[str, str]:
    return {"address": client_address(request)} if request is not None else {}


def groups_held_long_enough(user: "User", groups: frozenset[str], seconds: int) -> frozenset[str]:
    """Return those of `groups` that the user has been in for at least `seconds`. Runs no query if `seconds` is 0."""
    if seconds <= 0 or not groups:
        return groups
    latest = clock.now() - timedelta(seconds=seconds)
    entries = AuditEntry.objects.filter(action=GIVEN, object_ref=f"user_{user.pk}").order_by("seq")
    given: dict[str, datetime] = {}
    for details, at in entries.values_list("details", "at"):
        given.update(dict.fromkeys(json.loads(details).get("roles", ()), at))
    return frozenset(group for group in groups if given.get(group, user.date_joined) <= latest)
