"""Roles and permissions of users. Roles are Django groups; an agent's token sees only its own objects."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db.models import Q, prefetch_related_objects

from catalog.core import clock
from catalog.errors import ToolgateError
from catalog.models import ApiToken

SIGNED_IN_AT_KEY = "toolgate.signed_in"
"""Session key of the sign-in time, in seconds since 1970."""
FRESH_SIGN_IN = timedelta(hours=1)
"""Maximum age of a sign-in for changes to one's own account and to those of others."""


VIEWER, OPERATOR, REVIEWER, ADMINISTRATOR = ROLES = ("viewer", "operator", "reviewer", "administrator")


class NotAllowed(ToolgateError, PermissionDenied):
    """The authenticated user may not do this; the message says who may do it. → 403"""


def groups_of(user: User | AnonymousUser) -> frozenset[str]:
    """Return the names of the user's groups, read once per instance."""
    known: frozenset[str] | None = getattr(user, "_toolgate_groups", None)
    if known is None:
        names = user.groups.values_list("name", flat=True) if user.is_active else ()
        known = remember_groups(user, names)
    return known


def remember_groups(user: User | AnonymousUser, names: Iterable[str]) -> frozenset[str]:
    """Keep the names of the user's groups on the instance, for `groups_of`; an inactive user has none."""
    known = frozenset(names) if user.is_active else frozenset()
    user._toolgate_groups = known  # type: ignore[union-attr] # a memo on the instance, not a field
    return known


def prefetch_groups(people: Iterable[User]) -> None:
    """Load the groups of several people in one query, so that `groups_of` needs none."""
    read = list(people)
    prefetch_related_objects(read, "groups")
    for person in read:
        remember_groups(person, (group.name for group in person.groups.all()))


def roles_of(user: User | AnonymousUser) -> frozenset[str]:
    """Return the user's roles. A superuser is an administrator."""
    roles = groups_of(user).intersection(ROLES)
    return roles | {ADMINISTRATOR} if user.is_active and user.is_superuser else roles


def has_role(user: User | AnonymousUser, *names: str) -> bool:
    return not roles_of(user).isdisjoint(names)


def in_any_group(names: Collection[str]) -> Q:
    """Return the condition for people in at least one of these groups. Superusers are in the role administrator."""
    members = Q(pk__in=User.groups.through.objects.filter(group__name__in=names).values("user"))
    return members | Q(is_superuser=True) if ADMINISTRATOR in names else members


def can_see_all(user: User | AnonymousUser) -> bool:
    """Return whether the user sees everyone's plans, calls and requests: any role may, an agent's token never."""
    return agent_token_of(user) is None and bool(roles_of(user))


def user_for_token(token: ApiToken) -> User:
    """Return the token's user, marked as acting through it: an agent's token sees only its own objects."""
    token.user._toolgate_token = token  # type: ignore[attr-defined] # a mark on the instance, not a field
    return token.user


def acting_token_of(user: User | AnonymousUser) -> ApiToken | None:
    token: ApiToken | None = getattr(user, "_toolgate_token", None)
    return token


def agent_token_of(user: User | AnonymousUser) -> ApiToken | None:
    """Return the agent token through which the user acts, or None for people and personal tokens."""
    token = acting_token_of(user)
    return token if token is not None and token.kind == ApiToken.Kind.AGENT else None


def mark_session_user(user: User, signed_in: float | None) -> None:
    """Mark the user as acting through a session, with its sign-in time in seconds since 1970."""
    user._toolgate_signed_in = signed_in  # type: ignore[attr-defined] # a mark on the instance, not a field


def is_session_user(user: User) -> bool:
    """Return whether the user acts through a session: on a page, or over REST with the session cookie."""
    return hasattr(user, "_toolgate_signed_in")


def signed_in_at(user: User) -> datetime | None:
    """Return the sign-in time of the session through which the user acts, or None if unknown or not in a session."""
    seconds: float | None = getattr(user, "_toolgate_signed_in", None)
    return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)


def is_fresh_sign_in(seconds: float | None) -> bool:
    """Return whether a sign-in at this time, in seconds since 1970 or None, is recent enough to change accounts."""
    return seconds is not None and clock.now().timestamp() - seconds <= FRESH_SIGN_IN.total_seconds()


def has_fresh_sign_in(user: User) -> bool:
    """Return whether the user acts through a session whose sign-in is recent enough to change accounts."""
    return is_fresh_sign_in(getattr(user, "_toolgate_signed_in", None))


def user_display_name(user: User) -> str:
    """Return a user's name for display: the full name, else the username."""
    return user.get_full_name() or user.get_username()


def find_active_user(username: str) -> "User | None":
    if "\x00" in username:
        return None
    return get_user_model().objects.filter(username=username, is_active=True).first()
