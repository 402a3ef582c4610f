"""Second factors of sign-in: who needs one, and checks of codes. Storage is django-allauth's table `Authenticator`.

A code of an authenticator app is accepted once. This is kept in the database, because each process has a cache of its
own. Keys of apps and seeds of recovery codes are encrypted with TOOLGATE_SECRET_KEYS.
"""

from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache
from typing import Any

from allauth.core.internal.cryptokit import compare_user_code
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User

from catalog.access.roles import roles_of
from catalog.core import clock
from catalog.models import TotpUse
from catalog.signals import record_fact

STEP_SECONDS = 30
CLOCK_DRIFT_STEPS = 1
"""Time steps by which the clock of a phone may differ."""
SIGN_IN_FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
"""Factors that make a sign-in need more than the password; recovery codes alone do not."""

FACTOR_REQUIRED = "Your role requires a second factor. Set one up on the page /profile/security/ first."


def encrypt(text: str) -> str:
    return _fernet(tuple(settings.TOOLGATE_SECRET_KEYS)).encrypt(text.encode()).decode()


def decrypt(ciphertext: str) -> str:
    """Decrypt text that was encrypted with any of the keys. Raises cryptography.fernet.InvalidToken."""
    return _fernet(tuple(settings.TOOLGATE_SECRET_KEYS)).decrypt(ciphertext.encode()).decode()


@lru_cache(maxsize=4)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def has_second_factor(user: User) -> bool:
    return bool(Authenticator.objects.filter(user=user, type__in=SIGN_IN_FACTORS).exists())


def with_second_factor(users: Collection[int]) -> set[int]:
    """Return those of the users, by primary key, who have a second factor. One query."""
    found = Authenticator.objects.filter(user__in=users, type__in=SIGN_IN_FACTORS)
    return set(found.values_list("user", flat=True))


def requires_second_factor(user: User) -> bool:
    """Return whether one of the user's roles is in TOOLGATE_SECOND_FACTOR_ROLES. Runs no query if that is empty."""
    required = settings.TOOLGATE_SECOND_FACTOR_ROLES
    return bool(required) and not roles_of(user).isdisjoint(required)


def lacks_required_factor(user: User | AnonymousUser) -> bool:
    """Return whether the user must set up a second factor before anything else."""
    return isinstance(user, User) and requires_second_factor(user) and not has_second_factor(user)


def can_remove_factor(authenticator: Authenticator) -> bool:
    """Return False for the last factor of someone who must have one."""
    factors = Authenticator.objects.filter(user=authenticator.user, type__in=SIGN_IN_FACTORS)
    return not requires_second_factor(authenticator.user) or bool(factors.exclude(pk=authenticator.pk).exists())


def on_access_ended(sender: object, *, person: User, by: User, **kwargs: Any) -> None:
    """Remove the factors of someone whose access an administrator ended or reset: they may have lost them."""
    deleted, _ = Authenticator.objects.filter(user=person).delete()
    if deleted:
        ref, name = f"user_{person.pk}", person.get_username()
        record_fact("account.second_factor_removed", by=by, account=ref, person=name, factor="all")


def matching_step(secret: str, code: str) -> int | None:
    """Return the time step of which `code` is the code now, or None."""
    now = int(clock.now().timestamp()) // STEP_SECONDS
    for step in range(now - CLOCK_DRIFT_STEPS, now + CLOCK_DRIFT_STEPS + 1):
        if compare_user_code(actual=code, expected=format_hotp_value(hotp_value(secret, step))):
            return step
    return None


def remember_step(authenticator: Authenticator, step: int) -> None:
    """Store the step of the code by which an app was set up, so that this code cannot be used to sign in."""
    TotpUse.objects.create(authenticator=authenticator, step=step)


def use_code(user: User, code: str) -> Authenticator | None:
    """Return the factor of the user whose code this is, and use the code up; None if it is wrong or was used before."""
    for each in Authenticator.objects.filter(user=user).exclude(type=Authenticator.Type.WEBAUTHN):
        wrapped = each.wrap()
        with suppress(InvalidToken):  # its key is no longer in TOOLGATE_SECRET_KEYS
            if _use_app_code(each, code) if isinstance(wrapped, TOTP) else wrapped.validate_code(code):
                return each
    return None


def _use_app_code(authenticator: Authenticator, code: str) -> bool:
    step = matching_step(decrypt(authenticator.data["secret"]), code)
    if step is None:
        return False
    return bool(TotpUse.objects.filter(authenticator=authenticator, step__lt=step).update(step=step))
