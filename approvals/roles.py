"""Who was given a role or lost one, and whose account was switched on, off or deleted, in the audit log; groups too.

Whoever changes it in the admin pages is named; from a shell it is the system.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import AnonymousUser, Group, User

from approvals.audit import Line, append

if TYPE_CHECKING:
    from django.db.models import Model

GIVEN, TAKEN, DELETED = "role.given", "role.taken", "role.deleted"
WORDS = {"post_add": GIVEN, "post_remove": TAKEN, "pre_clear": TAKEN}
SUPERUSER = "superuser"
WATCHED = ("is_active", "is_superuser")

_acting: ContextVar[User | None] = ContextVar("acting", default=None)


@contextmanager
def acting(user: User | AnonymousUser) -> Iterator[None]:
    """Say who makes the changes that the body makes."""
    token = _acting.set(user if isinstance(user, User) else None)
    try:
        yield
    finally:
        _acting.reset(token)


def on_groups(sender: object, *, instance: "Model", action: str, pk_set: Iterable[int] | None, **kwargs: Any) -> None:
    """Keep which groups a person has joined or left; `instance` is the person, or the group."""
    if action not in WORDS:
        return
    for person, names in _changed(instance, pk_set):
        if names:
            _keep(WORDS[action], person, roles=names)


def _changed(instance: "Model", pks: Iterable[int] | None) -> Iterator[tuple[User, list[str]]]:
    """Yield people with the names of the groups that change; no keys mean all of them."""
    if isinstance(instance, Group):
        people = instance.user_set.all() if pks is None else User.objects.filter(pk__in=list(pks))
        for person in people:
            yield person, [instance.name]
    elif isinstance(instance, User):
        groups = instance.groups.all() if pks is None else Group.objects.filter(pk__in=list(pks))
        yield instance, sorted(group.name for group in groups)


def before_save(
    sender: object, *, instance: User, raw: bool, update_fields: Iterable[str] | None, **kwargs: Any
) -> None:
    """Note what an account was, where it may be about to change."""
    instance._toolgate_before = None  # type: ignore[attr-defined] # a memo on the instance, not a field
    if not raw and (update_fields is None or set(WATCHED).intersection(update_fields)):
        known = User.objects.filter(pk=instance.pk).values(*WATCHED).first()
        instance._toolgate_before = known or {"is_active": True, "is_superuser": False}  # type: ignore[attr-defined]


def after_save(sender: object, *, instance: User, **kwargs: Any) -> None:
    """Keep whether an account was switched on or off, or may do everything from now on."""
    before = instance._toolgate_before  # type: ignore[attr-defined] # noted before
    if before is None:
        return
    if before["is_active"] != instance.is_active:
        _keep("account.switched_on" if instance.is_active else "account.switched_off", instance)
    if before["is_superuser"] != instance.is_superuser:
        _keep(GIVEN if instance.is_superuser else TAKEN, instance, roles=[SUPERUSER])


def before_account_goes(sender: object, *, instance: User, **kwargs: Any) -> None:
    """Keep whose account is deleted, and what it was allowed to do."""
    roles = sorted(group.name for group in instance.groups.all())
    _keep("account.deleted", instance, roles=[*roles, SUPERUSER] if instance.is_superuser else roles)


def before_group_goes(sender: object, *, instance: Group, **kwargs: Any) -> None:
    """Keep which group is deleted, and who loses it: nobody is removed from it one by one."""
    for person, names in _changed(instance, None):
        _keep(TAKEN, person, roles=names)
    append(
        Line(action=DELETED, by=_acting.get(), object_ref=f"group_{instance.pk}", details={"roles": [instance.name]})
    )


def _keep(action: str, person: User, **details: Any) -> None:
    told = {"person": person.get_username(), **details}
    append(Line(action=action, by=_acting.get(), object_ref=f"user_{person.pk}", details=told))
