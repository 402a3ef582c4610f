"""Checks of passwords and of second factors, throttled by account and by client address.

After ten wrong passwords an account has to wait one minute, and so does an address after a hundred. Each further wrong
password doubles the wait, up to fifteen minutes. An attempt is counted before its password is checked, so concurrent
attempts cannot check more passwords. Unknown usernames are counted too. Codes of second factors count in the same way,
apart from passwords: a right password must not allow ten more codes.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from typing import TypeVar

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_login_failed
from django.db import transaction
from django.db.models import Case, F, Q, Value, When
from django.dispatch import Signal
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from catalog.core import clock
from catalog.core.rate_limits import MAX_CLEARED_ROWS
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import SignInThrottled
from catalog.models import SignInCount

THROTTLE_WAITS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 4, 8, 15))
"""The waits after the last free attempt, after the next one, and so on; the last is the longest."""
COUNT_LIFETIME = timedelta(days=1)
"""The time without an attempt after which a count is reset."""
MAX_PASSWORD = 4096
"""Longest password that is hashed."""
IPV6_NETWORK_BITS = 64
"""The network size that a provider typically assigns to one customer, who chooses the remaining bits freely."""

Found = TypeVar("Found")

sign_in_refused = Signal()
"""Sent with `request`, `username` and `retry_after` at the first refusal of each wait."""


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """One of the two counters of an attempt: the key of its row, and how many attempts are free of a wait."""

    key: str
    free: int


def authenticate_user(request: HttpRequest, *, username: str, password: str) -> User | None:
    """Return the user if the password is correct, else None. Raises SignInThrottled even for a correct password."""

    def check() -> User | None:
        return auth.authenticate(request, username=username, password=password)

    return _check_counted(request, username, AttemptKey(_attempt_key("account", username), free=10), check)


def check_second_factor(request: HttpRequest, *, username: str, check: Callable[[], Found | None]) -> Found | None:
    """Return the result of `check`, which is None for a wrong code, as one attempt at the account's second factor.

    Raises SignInThrottled even for a right code.
    """
    found = _check_counted(request, username, AttemptKey(_attempt_key("factor", username), free=10), check)
    if found is None:
        user_login_failed.send(sender=__name__, credentials={"username": username}, request=request)
    return found


def check_passkey(request: HttpRequest, *, check: Callable[[], Found | None]) -> Found | None:
    """Return the result of `check` for a sign-in that names no account. Only attempts of the address are counted.

    Raises SignInThrottled.
    """
    found = _check_counted(request, "", None, check)
    if found is None:
        user_login_failed.send(sender=__name__, credentials={"username": ""}, request=request)
    return found


def _check_counted(
    request: HttpRequest, username: str, account_key: AttemptKey | None, check: Callable[[], Found | None]
) -> Found | None:
    address_key = AttemptKey(_attempt_key("address", network_of(client_address(request))), free=100)
    counted = [address_key] if account_key is None else [account_key, address_key]
    try:
        _count_attempt(counted)
    except SignInThrottled as refusal:
        _announce_refusal(refusal, request, username, keys=[each.key for each in counted])
        raise
    found = check()
    if found is not None:
        _reset_counts(account_key, address_key)
    return found


def client_address(request: HttpRequest) -> str:
    """Return the client address of a request; behind the proxy trusted by TOOLGATE_HTTPS, the address the proxy saw."""
    seen = str(request.META.get("REMOTE_ADDR") or "")
    if settings.TOOLGATE_HTTPS:
        forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        with suppress(ValueError):
            return str(ip_address(forwarded))
    return seen


def network_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address itself, or the network of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((parsed.packed, IPV6_NETWORK_BITS), strict=False))
    return address


def clear_sign_in_counts(*, now: datetime) -> int:
    """Delete a batch of expired counts and return how many."""
    old = SignInCount.objects.filter(last_at__lt=now - COUNT_LIFETIME).order_by("pk").values("pk")[:MAX_CLEARED_ROWS]
    return SignInCount.objects.filter(pk__in=list(old.values_list("pk", flat=True))).delete()[0]


@retry_on_deadlock
def _count_attempt(keys: Sequence[AttemptKey]) -> None:
    """Count one attempt for all keys or for none, locking the account's row first. Raises SignInThrottled."""
    now = clock.now()
    with transaction.atomic():
        for counted in keys:
            rows = SignInCount.objects.filter(key=counted.key)
            rows.filter(last_at__lt=now - COUNT_LIFETIME).delete()
            fresh = SignInCount(key=counted.key, attempts=0, last_at=now)
            SignInCount.objects.bulk_create([fresh], ignore_conflicts=True)
            last_free, longest = counted.free - 1, len(THROTTLE_WAITS) - 1
            steps = [
                When(attempts=last_free + step, then=Value(now + wait)) for step, wait in enumerate(THROTTLE_WAITS)
            ]
            steps.append(When(attempts__gt=last_free + longest, then=Value(now + THROTTLE_WAITS[-1])))
            taken = rows.filter(Q(waits_until=None) | Q(waits_until__lte=now)).update(
                attempts=F("attempts") + 1,
                last_at=now,
                waits_until=Case(*steps, default=None),
                refusal_kept=False,
            )
            if not taken:
                ends = rows.values_list("waits_until", flat=True).get() or now
                raise SignInThrottled(max(1, ceil((ends - clock.now()).total_seconds())))


@retry_on_deadlock
def _reset_counts(account_key: AttemptKey | None, address_key: AttemptKey) -> None:
    with transaction.atomic():
        if account_key is not None:
            SignInCount.objects.filter(key=account_key.key).delete()
        counted = SignInCount.objects.filter(key=address_key.key, attempts__gt=0)
        counted.update(attempts=F("attempts") - 1, waits_until=None)


@retry_on_deadlock
def _announce_refusal(throttled: SignInThrottled, request: HttpRequest, username: str, *, keys: list[str]) -> None:
    """Send the signal once per wait, so that an attacker cannot fill the audit log with refusals."""
    with transaction.atomic():
        waiting = SignInCount.objects.filter(key__in=keys, waits_until__gt=clock.now(), refusal_kept=False)
        if waiting.update(refusal_kept=True):
            sign_in_refused.send(sender=None, request=request, username=username, retry_after=throttled.retry_after)


def _attempt_key(kind: str, text: str) -> str:
    """Return the key of a row, as a hash: people sometimes type their password into the username field."""
    return salted_hmac(f"toolgate.sign_in.{kind}", text, algorithm="sha256").hexdigest()
