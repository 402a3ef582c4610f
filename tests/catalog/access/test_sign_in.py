"""Throttling of sign-in by account and by address, sequential and concurrent."""

from datetime import timedelta
from functools import partial

import pytest
from django.test import RequestFactory

from catalog.access import sign_in
from catalog.core import clock
from catalog.errors import SignInThrottled
from catalog.models import SignInCount
from tests.racing import at_once


def attempt(username="ada", password="", *, address="192.0.2.1"):
    """Try to sign in; return the user, None for a wrong password, or the seconds to wait."""
    request = RequestFactory().post("/sign-in/", REMOTE_ADDR=address)
    try:
        return sign_in.authenticate_user(request, username=username, password=password or "wrong")
    except SignInThrottled as refusal:
        return refusal.retry_after


@pytest.fixture
def later(db, monkeypatch):
    """Set the clock forward."""
    now = [clock.now()]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    def forward(**span):
        now[0] += timedelta(**span)

    return forward


@pytest.mark.parametrize("username", ["ada", "nobody"])
def test_ten_wrong_passwords_make_an_account_wait_and_each_further_one_twice_as_long(ada, later, username):
    assert [attempt(username, address=f"192.0.2.{number}") for number in range(10)] == [None] * 10
    for seconds in (60, 120, 240, 480, 900, 900):
        assert attempt(username, f"secret-{username}", address="198.51.100.1") == seconds
        later(seconds=seconds)
        assert attempt(username) is None


def test_the_right_password_after_the_wait_resets_the_count_of_the_account(ada, later):
    for _ in range(10):
        attempt()
    later(minutes=1)
    assert attempt(password="secret-ada") == ada
    assert [attempt() for _ in range(10)] == [None] * 10
    assert attempt() == 60


def test_a_hundred_wrong_passwords_make_an_address_wait(ada, ben, later):
    for number in range(100):
        assert attempt(f"name{number}") is None
    assert attempt("ada", "secret-ada") == 60
    assert attempt("ada", "secret-ada", address="192.0.2.2") == ada


def test_right_passwords_are_not_counted_against_their_address(ada, later):
    for number in range(99):
        attempt(f"name{number}")
    assert [attempt(password="secret-ada") for _ in range(3)] == [ada] * 3
    assert attempt("another") is None
    assert attempt("another") == 60


def test_an_attempt_that_one_count_refuses_is_left_out_of_the_other(ada, later):
    for _ in range(200):
        attempt()
    assert attempt("ben") is None


def test_the_address_is_the_one_the_trusted_proxy_saw(settings):
    headers = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7"}
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", headers=headers)
    assert sign_in.client_address(request) == "10.0.0.1"
    settings.TOOLGATE_HTTPS = True
    assert sign_in.client_address(request) == "198.51.100.7"
    for odd in ({}, {"X-Forwarded-For": "198.51.100.7, x"}):
        assert sign_in.client_address(RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", headers=odd)) == "10.0.0.1"


def test_a_network_of_ipv6_counts_as_one_address():
    assert sign_in.network_of("2001:db8:1:2:3::4") == sign_in.network_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert sign_in.network_of("::ffff:192.0.2.1") == sign_in.network_of("192.0.2.1") == "192.0.2.1"


def test_counts_are_forgotten_after_a_day_and_cleared(ada, later):
    for _ in range(10):
        attempt()
    assert sign_in.clear_sign_in_counts(now=clock.now()) == 0
    later(days=1, seconds=1)
    assert attempt() is None
    assert SignInCount.objects.get(key=sign_in._attempt_key("account", "ada")).attempts == 1
    later(days=1, seconds=1)
    assert sign_in.clear_sign_in_counts(now=clock.now()) == 2
    assert not SignInCount.objects.exists()


@pytest.mark.db
def test_attempts_at_the_same_moment_check_ten_passwords_and_no_more(transactional_db, ada):
    results = at_once(*[partial(attempt, address=f"192.0.2.{number}") for number in range(16)])
    assert results.count(None) == 10
    assert all(1 <= each <= 60 for each in results if each is not None)
