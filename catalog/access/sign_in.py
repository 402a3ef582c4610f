"""Sign-in with a password, throttled: repeated wrong passwords make an account, and an address, wait.

Ten wrong passwords make an account wait one minute, a hundred make an address wait; each further one doubles the wait,
up to fifteen minutes. An attempt is counted before its password is checked, so that attempts at the same moment never
check more passwords than that. The right password resets the count of its account and is taken back from that of its
address. Names that no account has are counted like any other.

Views that take a password call `authenticate` of this module in place of Django's.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import User
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
"""The wait after the last attempt that is free, after the next one, and so on; the last is the longest."""
COUNT_LIFETIME = timedelta(days=1)
"""The time without an attempt after which a count begins anew."""
IPV6_NETWORK_BITS = 64
"""The part of an IPv6 address that a provider gives to one customer, who chooses the rest freely."""

sign_in_refused = Signal()
"""Sent with `request`, `username` and `retry_after` at the first refusal of each wait."""


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """One side of an attempt: the key its row is found by, and how many attempts are free."""

    key: str
    free: int


def authenticate_user(request: HttpRequest, *, username: str, password: str) -> User | None:
    """Return the user of this name if the password is theirs, else None. Raises SignInThrottled, right or wrong."""
    account = AttemptKey(_attempt_key("account", username), free=10)
    address = AttemptKey(_attempt_key("address", network_of(client_address(request))), free=100)
    try:
        _count_attempt(account, address)
    except SignInThrottled as refusal:
        _announce_refusal(refusal, request, username, keys=[account.key, address.key])
        raise
    user = auth.authenticate(request, username=username, password=password)
    if user is not None:
        _reset_counts(account, address)
    return user


def client_address(request: HttpRequest) -> str:
    """Return the address a request came from; behind the proxy that TOOLGATE_HTTPS trusts, the one that it saw."""
    seen = str(request.META.get("REMOTE_ADDR") or "")
    if settings.TOOLGATE_HTTPS:
        told = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        with suppress(ValueError):
            return str(ip_address(told))
    return seen


def network_of(address: str) -> str:
    """Return what is counted as one address: an IPv4 address, or the network of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((parsed.packed, IPV6_NETWORK_BITS), strict=False))
    return address


def clear_sign_in_counts(*, now: datetime) -> int:
    """Delete some of the counts that are no longer remembered; return how many."""
    old = SignInCount.objects.filter(last_at__lt=now - COUNT_LIFETIME).order_by("pk").values("pk")[:MAX_CLEARED_ROWS]
    return SignInCount.objects.filter(pk__in=list(old.values_list("pk", flat=True))).delete()[0]


@retry_on_deadlock
def _count_attempt(account: AttemptKey, address: AttemptKey) -> None:
    """Count one attempt on both sides, or on neither. Raises SignInThrottled.

    The account's row is always locked before the address's.
    """
    now = clock.now()
    with transaction.atomic():
        for counted in (account, address):
            _increment_count(counted, now)


def _increment_count(counted: AttemptKey, now: datetime) -> None:
    rows = SignInCount.objects.filter(key=counted.key)
    rows.filter(last_at__lt=now - COUNT_LIFETIME).delete()
    fresh = SignInCount(key=counted.key, attempts=0, last_at=now)
    SignInCount.objects.bulk_create([fresh], ignore_conflicts=True)
    last_free, longest = counted.free - 1, len(THROTTLE_WAITS) - 1
    steps = [When(attempts=last_free + step, then=Value(now + wait)) for step, wait in enumerate(THROTTLE_WAITS)]
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
def _reset_counts(account: AttemptKey, address: AttemptKey) -> None:
    with transaction.atomic():
        SignInCount.objects.filter(key=account.key).delete()
        counted = SignInCount.objects.filter(key=address.key, attempts__gt=0)
        counted.update(attempts=F("attempts") - 1, waits_until=None)


@retry_on_deadlock
def _announce_refusal(refusal: SignInThrottled, request: HttpRequest, username: str, *, keys: list[str]) -> None:
    """Send the signal unless it was sent during this wait: an attacker does not fill the audit log with refusals."""
    with transaction.atomic():
        waiting = SignInCount.objects.filter(key__in=keys, waits_until__gt=clock.now(), refusal_kept=False)
        if waiting.update(refusal_kept=True):
            sign_in_refused.send(sender=None, request=request, username=username, retry_after=refusal.retry_after)


def _attempt_key(kind: str, text: str) -> str:
    """Return the key of a row. It does not show the name: people type their password there, too."""
    return salted_hmac(f"toolgate.sign_in.{kind}", text, algorithm="sha256").hexdigest()
