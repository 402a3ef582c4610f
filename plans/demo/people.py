"""The demo's users with their tokens. Users are created once; passwords and tokens are new in each run."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction

from catalog.access.people import set_groups
from catalog.access.roles import ADMINISTRATOR, OPERATOR, REVIEWER, VIEWER
from catalog.access.tokens import create_token, revoke_token
from catalog.errors import Conflict
from catalog.models import ApiToken

MAIL_DOMAIN = "demo.example"
"""Marks users created by the demo, which never changes the password of any other user."""
TOKEN_MARK = " (demo)"  # noqa: S105 - marks the demo's tokens, not a secret
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


@dataclass(frozen=True, slots=True)
class Person:
    username: str
    name: str
    role: str


@dataclass(frozen=True, slots=True)
class DemoToken:
    """A token of the demo: its key in the JSON output, title, owner, kind and scopes."""

    name: str
    title: str
    username: str
    kind: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DemoSignIn:
    person: Person
    password: str


PEOPLE = (
    Person("ada", "Ada Okafor", OPERATOR),
    Person("ben", "Ben Lindqvist", OPERATOR),
    Person("rosa", "Rosa Méndez", REVIEWER),
    Person("tomas", "Tomáš Dvořák", REVIEWER),
    Person("vera", "Vera Nakamura", VIEWER),
    Person("admin", "Noor Haddad", ADMINISTRATOR),
)
READS = ("tools:read", "plans:read", "approvals:read")
ASKS = ("calls:create", "plans:write")
DEMO_TOKENS = (
    DemoToken("agent", "Research agent", "ada", ApiToken.Kind.AGENT, (*READS, *ASKS)),
    DemoToken("operator", "Ada's scripts", "ada", ApiToken.Kind.PERSONAL, (*READS, *ASKS)),
    DemoToken("reviewer", "Rosa's scripts", "rosa", ApiToken.Kind.PERSONAL, (*READS, "approvals:decide")),
)
STORY_TOKENS = (
    DemoToken("support", "Support agent", "ada", ApiToken.Kind.AGENT, (*READS, *ASKS)),
    DemoToken("finance", "Finance agent", "ada", ApiToken.Kind.AGENT, (*READS, *ASKS)),
    DemoToken("shop", "Shop agent", "ben", ApiToken.Kind.AGENT, (*READS, *ASKS)),
)
"""Agents that only appear in the stories; nobody gets their tokens."""


def has_story_tokens() -> bool:
    """Return whether the stories have begun: the tokens of their agents are created just before."""
    return ApiToken.objects.filter(name__in=[f"{each.title}{TOKEN_MARK}" for each in STORY_TOKENS]).exists()


def reset_people() -> list[DemoSignIn]:
    """Create missing demo users and set new passwords for all. Raises Conflict if another user has such a name."""
    with transaction.atomic():
        sign_ins = []
        for person in PEOPLE:
            mail = f"{person.username}@{MAIL_DOMAIN}"
            user, _ = User.objects.get_or_create(username=person.username, defaults={"email": mail})
            if user.email != mail:
                raise Conflict(f"The user '{person.username}' already exists. The demo needs its own database.")
            user.first_name, _, user.last_name = person.name.partition(" ")
            user.is_active = True
            password = new_password()
            user.set_password(password)
            user.save()
            set_groups(user, [person.role])
            sign_ins.append(DemoSignIn(person, password))
        return sign_ins


def new_password() -> str:
    """Return a password that is easy to read and type, with 74 bits."""
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(5)) for _ in range(3))


def reset_tokens() -> dict[str, tuple[ApiToken, str]]:
    """Revoke the tokens of earlier runs and create new ones; return each with its secret, by name."""
    with transaction.atomic():
        earlier = ApiToken.objects.filter(name__endswith=TOKEN_MARK, user__email__endswith=f"@{MAIL_DOMAIN}")
        for token in earlier.filter(revoked_at=None).select_related("user"):
            revoke_token(token, by=token.user)
        return create_tokens(DEMO_TOKENS)


def create_tokens(tokens: Iterable[DemoToken]) -> dict[str, tuple[ApiToken, str]]:
    """Create these tokens; return each with its secret, by name."""
    made = {}
    for each in tokens:
        user = User.objects.get(username=each.username)
        made[each.name] = create_token(user=user, kind=each.kind, scopes=each.scopes, name=f"{each.title}{TOKEN_MARK}")
    return made
