"""People and their groups: create, invite, change, deactivate and reset. Roles are groups with the names of ROLES.

Only administrators change people, in a session that began within the last hour. One lock serialises all changes, so
that the last administrator cannot be lost to a race. Changes of accounts and groups are audited by the signals
of their models, in the name that `attribute_changes_to` sets.
"""

import hashlib
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX, make_password
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import (
    Case,
    Count,
    F,
    Func,
    IntegerField,
    OuterRef,
    ProtectedError,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.dispatch import Signal
from django.urls import reverse

from catalog import signals
from catalog.access.passkeys import people_with_passkeys
from catalog.access.roles import (
    ADMINISTRATOR,
    ROLES,
    NotAllowed,
    acting_token_of,
    has_fresh_sign_in,
    has_role,
    in_any_group,
    is_session_user,
)
from catalog.access.tokens import checksum_of, revoke_token
from catalog.core import clock
from catalog.core.locks import LockSpace, lock_until_commit
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, ParameterError, field_error
from catalog.models import AccountLink, ApiToken
from catalog.text.deceptive_text import confusable_words, hidden_places

INVITATION_LIFETIME = timedelta(days=7)
RESET_LIFETIME = timedelta(days=1)
NAMES = ("first_name", "last_name")
COLUMNS = (*NAMES, "email")
MAX_NAME = 150
MAX_USERNAME = 150
MAX_EMAIL = 254
MAX_GROUP_NAME = 150
MAX_MEMBERS = 500
"""Maximum number of people that one change adds to a group or removes from it."""
ACTIVE, INVITED, DEACTIVATED = STATES = ("active", "invited", "deactivated")

access_ended = Signal()
"""Sent with `person` and `by`, inside the transaction, if a person's sessions, claims and subscriptions end.

The password cannot be used any more then, which ends the sessions; other modules end what they keep for the person.
"""

_acting_user: ContextVar[User | None] = ContextVar("acting", default=None)


@contextmanager
def attribute_changes_to(user: User | AnonymousUser) -> Iterator[None]:
    """Record changes of accounts and groups inside this `with` block as made by `user`."""
    token = _acting_user.set(user if isinstance(user, User) else None)
    try:
        yield
    finally:
        _acting_user.reset(token)


def acting_user() -> User | None:
    return _acting_user.get()


class SignInTooOld(NotAllowed):
    """The session began too long ago for this change. → 403"""


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link that was made just now, with the key that is not stored. `address` is what the person opens."""

    link: AccountLink
    key: str

    def address(self, server: str = "") -> str:
        return f"{server or settings.TOOLGATE_URL}{reverse('welcome')}?key={self.key}"


def check_may_change_people(by: User) -> None:
    """Raise NotAllowed unless `by` is an administrator in a session, and SignInTooOld if that is older than an hour."""
    if acting_token_of(by) is not None or not is_session_user(by):
        raise NotAllowed("A token cannot change people or groups. An administrator signs in to do this.")
    if not has_role(by, ADMINISTRATOR):
        raise NotAllowed("Only administrators may change people and groups.")
    if not has_fresh_sign_in(by):
        raise SignInTooOld("Sign in again: people and groups are changed within an hour of signing in.")


def state_condition(state: str) -> Q:
    """Return the condition for people in one of STATES."""
    invited = Q(
        pk__in=AccountLink.objects.filter(kind=AccountLink.Kind.INVITATION, used_at=None, ended_at=None).values(
            "person"
        )
    )
    if state == ACTIVE:
        return Q(is_active=True)
    return Q(is_active=False) & (invited if state == INVITED else ~invited)


def open_links(of: Collection[int]) -> dict[int, AccountLink]:
    """Return the open link of each of these people who has one, expired ones included. One query."""
    found = AccountLink.objects.filter(person__in=of, used_at=None, ended_at=None)
    return {link.person_id: link for link in found}


def state_of(person: User, link: AccountLink | None) -> str:
    """Return the state of a person with this open link."""
    if person.is_active:
        return ACTIVE
    return INVITED if link is not None and link.kind == AccountLink.Kind.INVITATION else DEACTIVATED


def held_roles(person: User) -> list[str]:
    """Return the roles that a person has or, while the account is not active, will have."""
    held = {group.name for group in person.groups.all()} | ({ADMINISTRATOR} if person.is_superuser else set())
    return [name for name in ROLES if name in held]


def other_groups(person: User) -> list[str]:
    return sorted(group.name for group in person.groups.all() if group.name not in ROLES)


def member_count() -> Any:
    """Return an expression for the active members of a group; superusers are members of the role administrator."""
    superusers = User.objects.filter(is_active=True, is_superuser=True).exclude(groups=OuterRef("pk")).order_by()
    number = Subquery(superusers.annotate(number=Func(F("pk"), function="COUNT")).values("number"), IntegerField())
    others = Case(When(name=ADMINISTRATOR, then=number), default=Value(0))
    return Count("user", filter=Q(user__is_active=True)) + others


@retry_on_deadlock
def create_person(
    *,
    username: str,
    roles: Collection[str] = (),
    groups: Collection[str] = (),
    invited: bool = True,
    by: User,
    **columns: str,
) -> tuple[User, NewLink | None]:
    """Create a person with these roles and other groups; invited ones are inactive until they have used the link.

    `columns` are those of COLUMNS, empty if left out. A person who is not invited is active, and has no password until
    an administrator resets it. Raises NotAllowed and ParameterError.
    """
    with _changing_people(by):
        username = User.normalize_username(username)
        problems = [
            *_username_problems(username),
            *_column_problems(columns),
            *_group_problems(roles, groups),
        ]
        _refuse(problems)
        person = User(username=username, is_active=not invited, **_clean_columns(columns))
        person.set_unusable_password()
        person.save()
        set_groups(person, [*roles, *groups])
        link = _make_link(person, AccountLink.Kind.INVITATION, by) if invited else None
    return person, link


@retry_on_deadlock
def change_person(person: User, changes: Mapping[str, Any], *, by: User) -> User:
    """Change columns of COLUMNS, `roles` (all of them) or `groups` (all other groups) of a person; return the person.

    Raises NotAllowed, ParameterError, and Conflict if no administrator could sign in any more.
    """
    with _changing_people(by):
        current = User.objects.get(pk=person.pk)
        _locked_tokens(current)  # before the audit log: the caller's transaction may deactivate the person, too
        columns = {name: str(changes[name]) for name in COLUMNS if name in changes}
        roles = changes.get("roles", held_roles(current))
        groups = changes.get("groups", other_groups(current))
        _refuse([*_column_problems(columns, current), *_group_problems(roles, groups)])
        for column, value in _clean_columns(columns).items():
            setattr(current, column, value)
        current.save(update_fields=COLUMNS)  # the person may change their password or sign in meanwhile
        if "roles" in changes or "groups" in changes:
            set_groups(current, [*roles, *groups])
            _require_administrator()
    return current


def set_groups(person: User, names: Collection[str]) -> None:
    """Set all groups of a person, roles included, in `people_locked`. Administrators alone are staff and superusers."""
    is_administrator = ADMINISTRATOR in names
    person.is_staff, person.is_superuser = is_administrator, person.is_superuser and is_administrator
    person.save(update_fields=["is_staff", "is_superuser"])
    person.groups.set(Group.objects.filter(name__in=names))


@retry_on_deadlock
def deactivate_person(person: User, *, by: User) -> None:
    """End a person's access: sessions, tokens and connections, claims and subscriptions. Their records are kept.

    The password is removed, so that sessions do not come to life again with the account. Raises NotAllowed, and
    Conflict if the person is not active or is the last administrator who can sign in.
    """
    with _changing_people(by):
        current = User.objects.get(pk=person.pk)
        if not current.is_active:
            raise Conflict("This person is not active.")
        tokens = _locked_tokens(current)
        current.is_active = False
        _remove_password(current, by)
        _require_administrator()
        _end_tokens(tokens, by)


@retry_on_deadlock
def activate_person(person: User, *, by: User) -> NewLink:
    """Let a deactivated person in again; return the link with which they set a password. Raises Conflict."""
    with _changing_people(by):
        current = User.objects.get(pk=person.pk)
        if current.is_active:
            raise Conflict("This person is active.")
        if state_of(current, open_links([current.pk]).get(current.pk)) == INVITED:
            raise Conflict("This person was invited and has not accepted yet. Send the invitation again instead.")
        _end_tokens(_locked_tokens(current), by)  # one that was made while the account was being deactivated
        current.is_active = True
        current.save(update_fields=["is_active"])
        return _make_link(current, AccountLink.Kind.RESET, by)


@retry_on_deadlock
def reset_person(person: User, *, by: User) -> NewLink:
    """End a person's sessions and password; return the link with which they set a new one.

    For someone who was invited, this is a new invitation, and the earlier link ends. Raises NotAllowed, and Conflict
    if the person is deactivated or is the last administrator who can sign in: they might lose the link.
    """
    with _changing_people(by):
        current = User.objects.get(pk=person.pk)
        state = state_of(current, open_links([current.pk]).get(current.pk))
        if state == DEACTIVATED:
            raise Conflict("This person is deactivated. Activate the account instead.")
        if state == INVITED:
            return _make_link(current, AccountLink.Kind.INVITATION, by)
        _remove_password(current, by)
        _require_administrator()
        return _make_link(current, AccountLink.Kind.RESET, by)


@retry_on_deadlock
def withdraw_invitation(person: User, *, by: User) -> None:
    """Delete a person who has not accepted the invitation, so that the username is free again. Raises Conflict."""
    with _changing_people(by):
        current = User.objects.get(pk=person.pk)
        if state_of(current, open_links([current.pk]).get(current.pk)) != INVITED:
            raise Conflict("This person has no open invitation.")
        links = list(AccountLink.objects.filter(person=current).values_list("public_id", flat=True))
        AccountLink.objects.filter(person=current).delete()
        for link in links:
            signals.record_fact("link.deleted", by=by, link=link, person=current.get_username())
        try:
            current.delete()
        except ProtectedError:
            raise Conflict("Records name this person, so the account is kept. Deactivate it instead.") from None


def check_columns(columns: Mapping[str, str], of: User | None = None) -> dict[str, str]:
    """Return columns of COLUMNS as they are stored: without superfluous spaces. Raises ParameterError.

    A mail address must be nobody else's than that of `of`.
    """
    _refuse(_column_problems(columns, of))
    return _clean_columns(columns)


def find_link(key: str) -> AccountLink | None:
    """Return the link with this key, usable or not, with its person."""
    return AccountLink.objects.select_related("person").filter(secret_digest=checksum_of(key)).first()


def is_usable(link: AccountLink) -> bool:
    """Return whether the link still sets a password: it was neither used nor ended, and has not expired."""
    is_open = link.used_at is None and link.ended_at is None and link.expires_at > clock.now()
    return is_open and (link.person.is_active or link.kind == AccountLink.Kind.INVITATION)


@retry_on_deadlock
def use_link(link: AccountLink, *, password: str, **names: str) -> User:
    """Set a person's password, and with an invitation activate the account; return the person.

    `names` are those of NAMES. A link is used once: Conflict if it was used, ended or has expired meanwhile. Raises
    ParameterError for a password that is too weak.
    """
    problems = _column_problems(names)
    try:
        validate_password(password, link.person)
    except ValidationError as error:
        problems += [_problem("password", message) for message in error.messages]
    _refuse(problems)
    encoded = make_password(password)  # slow on purpose, so it is done before the lock
    with people_locked(link.person):
        current = AccountLink.objects.select_related("person").get(pk=link.pk)
        now = clock.now()
        usable = AccountLink.objects.filter(pk=link.pk, used_at=None, ended_at=None, expires_at__gt=now)
        if not is_usable(current) or not usable.update(used_at=now):
            raise Conflict("This link was used already, has expired, or was replaced by a newer one.")
        person = current.person
        person.password = encoded
        person.is_active = True
        for column, value in _clean_columns(names).items():
            setattr(person, column, value)
        person.save()
        signals.record_fact("link.used", by=person, link=current.public_id, person=person.get_username())
    return person


@retry_on_deadlock
def record_mailed(new_link: NewLink) -> None:
    """Record that a link was sent to the mail address of its person: opening it proves that the address is theirs."""
    link = new_link.link
    with transaction.atomic():
        AccountLink.objects.filter(pk=link.pk).update(sent_to=link.person.email)
        signals.record_fact("link.sent", by=link.made_by, link=link.public_id, person=link.person.get_username())


@retry_on_deadlock
def create_group(name: str, members: Iterable[str] = (), *, by: User) -> Group:
    """Create a group that policies may name. Raises NotAllowed and ParameterError."""
    with _changing_people(by):
        name = " ".join(name.split())
        _refuse(_group_name_problems(name))
        group: Group = Group.objects.create(name=name)
        group.user_set.add(*_members(members, "members"))
    return group


@retry_on_deadlock
def change_members(group: Group, *, add: Iterable[str] = (), remove: Iterable[str] = (), by: User) -> None:
    """Add people to a group and remove others, by username. Raises NotAllowed, ParameterError, Conflict for roles."""
    with _changing_people(by):
        if group.name in ROLES:
            raise Conflict(f"{group.name} is a role. Change the roles of each person instead.")
        joining, leaving = _members(add, "add"), _members(remove, "remove")
        if both := {person.pk for person in joining} & {person.pk for person in leaving}:
            name = next(person.get_username() for person in joining if person.pk in both)
            raise field_error("remove", "invalid", f"{name} is both added and removed.")
        group.user_set.add(*joining)
        group.user_set.remove(*leaving)


@retry_on_deadlock
def delete_group(group: Group, *, by: User) -> None:
    """Delete a group. Raises NotAllowed, and Conflict for a role or while a policy or an open request names it."""
    with _changing_people(by):
        if group.name in ROLES:
            raise Conflict(f"{group.name} is a role and cannot be deleted.")
        signals.record_fact("group.deleting", by=by, group=group.name)  # higher layers refuse by raising Conflict
        group.delete()


@contextmanager
def _changing_people(by: User) -> Iterator[None]:
    """Open the transaction of a change by an administrator, whose role is read again. Raises NotAllowed."""
    check_may_change_people(by)
    with people_locked(by):
        if not administrators().filter(pk=by.pk).exists():
            raise NotAllowed("Only administrators may change people and groups.")
        yield


@contextmanager
def people_locked(by: User | AnonymousUser) -> Iterator[None]:
    """Open the transaction of a change by `by`, under the lock of all changes of people."""
    with transaction.atomic(), attribute_changes_to(by):
        lock_until_commit(LockSpace.PEOPLE, "")
        yield


def administrators() -> QuerySet[User]:
    """Return the active administrators, superusers included."""
    return User.objects.filter(in_any_group([ADMINISTRATOR]), is_active=True)


def administrators_who_can_sign_in() -> QuerySet[User]:
    """Return the active administrators who have a password, a passkey or a link to the provider of single sign-on."""
    can_sign_in = ~Q(password__startswith=UNUSABLE_PASSWORD_PREFIX) | Q(pk__in=people_with_passkeys())
    if settings.TOOLGATE_SSO_ISSUER:
        can_sign_in |= Q(socialaccount__provider=sso_provider())
    return administrators().filter(can_sign_in)


def sso_provider() -> str:
    """Return the id of the provider of single sign-on. It is that of the issuer, so that another one has no links."""
    return f"oidc-{hashlib.sha256(settings.TOOLGATE_SSO_ISSUER.encode()).hexdigest()[:32]}"


def _require_administrator() -> None:
    if not administrators_who_can_sign_in().exists():
        message = "This is the last administrator who can sign in. First make someone else one, who sets a password."
        raise Conflict(message)


def _remove_password(person: User, by: User) -> None:
    """Make the password unusable, which ends every session, and tell what else ends with them."""
    person.set_unusable_password()
    person.save(update_fields=["password", "is_active"])
    _end_links(person)
    access_ended.send(sender=User, person=person, by=by)


def _locked_tokens(person: User) -> list[ApiToken]:
    """Lock the live tokens of a person, before the head of the audit log, as a change of a single token does."""
    live = ApiToken.objects.filter(user=person, revoked_at=None, expires_at__gt=clock.now())
    return list(live.select_for_update().order_by("pk"))


def _end_tokens(tokens: Iterable[ApiToken], by: User) -> None:
    for token in tokens:
        revoke_token(token, by=by, reason="The account was deactivated.")


def _make_link(person: User, kind: AccountLink.Kind, by: User) -> NewLink:
    """Make the only link of a person that works; an earlier one ends."""
    _end_links(person)
    key, now = secrets.token_urlsafe(32), clock.now()
    lifetime = INVITATION_LIFETIME if kind == AccountLink.Kind.INVITATION else RESET_LIFETIME
    link = AccountLink.objects.create(
        person=person, kind=kind, secret_digest=checksum_of(key), made_by=by, made_at=now, expires_at=now + lifetime
    )
    signals.record_fact("link.created", by=by, link=link.public_id, person=person.get_username(), purpose=kind.value)
    return NewLink(link, key)


def _end_links(person: User) -> None:
    for link in AccountLink.objects.filter(person=person, used_at=None, ended_at=None):
        AccountLink.objects.filter(pk=link.pk).update(ended_at=clock.now())
        signals.record_fact("link.ended", by=acting_user(), link=link.public_id, person=person.get_username())


Problem = dict[str, str]


def _problem(field: str, message: str) -> Problem:
    return {"path": field, "code": "invalid", "message": message}


def _refuse(problems: Sequence[Problem]) -> None:
    if problems:
        raise ParameterError(problems[0]["message"], {"field": problems[0]["path"], "errors": list(problems)})


def _username_problems(username: str) -> list[Problem]:
    if not 1 <= len(username) <= MAX_USERNAME:
        return [_problem("username", f"The username must have 1 to {MAX_USERNAME} characters.")]
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError as error:
        return [_problem("username", error.messages[0])]
    if not username.strip("."):
        return [_problem("username", "The username must have a letter or digit.")]
    if confusable_words(username) or hidden_places(username):
        return [_problem("username", "The username has characters that look like others. Use letters of one script.")]
    # Compared here, because databases fold the case of ASCII letters alone, or by their locale.
    taken = {each.casefold(): each for each in User.objects.values_list("username", flat=True)}
    if username.casefold() in taken:
        return [_problem("username", f"The username {taken[username.casefold()]} is taken.")]
    return []


def _clean_columns(columns: Mapping[str, str]) -> dict[str, str]:
    return {name: " ".join(text.split()) for name, text in columns.items()}


def _column_problems(columns: Mapping[str, str], of: User | None = None) -> list[Problem]:
    problems = []
    for field, text in _clean_columns(columns).items():
        if field == "email":
            problems += _email_problems(text, of)
        elif len(text) > MAX_NAME:
            problems.append(_problem(field, f"A name may have at most {MAX_NAME} characters."))
        elif hidden_places(text):
            message = "The name has invisible characters, or characters that change its direction."
            problems.append(_problem(field, message))
    return problems


def _email_problems(email: str, of: User | None = None) -> list[Problem]:
    if not email:
        return []
    try:
        validate_email(email)
    except ValidationError as error:
        return [_problem("email", error.messages[0])]
    if len(email) > MAX_EMAIL:
        return [_problem("email", f"The mail address may have at most {MAX_EMAIL} characters.")]
    others = User.objects.exclude(pk=of.pk) if of is not None else User.objects.all()
    if any(email.casefold() == each.casefold() for each in others.values_list("email", flat=True)):
        return [_problem("email", "Someone else has this mail address.")]
    return []


def _group_problems(roles: Collection[str], groups: Collection[str]) -> list[Problem]:
    known = set(Group.objects.filter(name__in=groups).values_list("name", flat=True))
    problems = [_problem("roles", f"There is no role {name[:MAX_GROUP_NAME]}.") for name in roles if name not in ROLES]
    for name in groups:
        if name in ROLES:
            problems.append(_problem("groups", f"{name} is a role. Name it in roles."))
        elif name not in known:
            problems.append(_problem("groups", f"There is no group {name[:MAX_GROUP_NAME]}."))
    return problems[:1]


def _group_name_problems(name: str) -> list[Problem]:
    if not 1 <= len(name) <= MAX_GROUP_NAME:
        return [_problem("name", f"The name must have 1 to {MAX_GROUP_NAME} characters.")]
    if not all(each.isalnum() or each in " ._-+@" for each in name) or not any(map(str.isalnum, name)):
        return [_problem("name", "A group's name has letters, digits, spaces and . _ - + @ only.")]
    if confusable_words(name):
        return [_problem("name", "The name has characters that look like others. Use letters of one script.")]
    taken = {each.casefold(): each for each in Group.objects.values_list("name", flat=True)}
    if name.casefold() in taken:
        return [_problem("name", f"The group {taken[name.casefold()]} exists.")]
    return []


def _members(usernames: Iterable[str], field: str) -> list[User]:
    names = list(dict.fromkeys(usernames))
    if len(names) > MAX_MEMBERS:
        raise field_error(field, "invalid", f"Name at most {MAX_MEMBERS} people at once.")
    found = {person.get_username(): person for person in User.objects.filter(username__in=names)}
    if unknown := [name for name in names if name not in found]:
        raise field_error(field, "invalid", f"There is nobody with the username {unknown[0][:MAX_USERNAME]}.")
    return [found[name] for name in names]
