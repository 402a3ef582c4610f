"""Bearer tokens: creation, storage as a digest, expiry and revocation."""

import hashlib
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from catalog.access.tokens import authenticate_token, create_token
from catalog.core import clock
from catalog.errors import ParameterError
from catalog.models import ApiToken
from tests.corpus import faults


def test_the_text_is_shown_once_and_only_its_digest_is_kept(ada):
    token, text = create_token(user=ada, kind="personal", scopes=["tools:read"], name="mine")

    assert text.startswith("tg_")
    assert len(text) >= 3 + 43
    assert token.secret_digest == hashlib.sha256(text.encode()).hexdigest()
    assert text.startswith(token.prefix)
    assert text not in str(ApiToken.objects.values().get())


def test_a_token_lives_90_days_unless_told_otherwise(ada):
    token, _ = create_token(user=ada, kind="agent", scopes=["calls:create"])

    assert timedelta(days=89) < token.expires_at - clock.now() <= timedelta(days=90)


def test_invalid_token_is_refused_at_its_field(ada):
    cases = [
        ("kind", {"kind": "robot"}),
        ("scopes", {"scopes": []}),
        ("scopes", {"scopes": ["everything"]}),
        ("scopes", {"kind": "agent", "scopes": ["approvals:decide"]}),
        ("scopes", {"kind": "agent", "scopes": ["catalog:write"]}),
        ("scopes", {"kind": "agent", "scopes": ["policies:write"]}),
        ("scopes", {"kind": "agent", "scopes": ["audit:read"]}),
        ("days", {"days": 0}),
        ("days", {"days": 366}),
        ("hold_seconds", {"hold_seconds": 601}),
        ("name", {"name": "n" * 129}),
    ]

    def check(field, wanted):
        with pytest.raises(ParameterError) as refusal:
            create_token(**{"user": ada, "kind": "personal", "scopes": ["tools:read"], **wanted})

        assert refusal.value.details["field"] == field
        assert not ApiToken.objects.exists()

    assert faults(check, cases) == {}


def test_a_live_token_is_recognised(ada):
    token, text = create_token(user=ada, kind="personal", scopes=["tools:read"])

    assert authenticate_token(text) == token
    assert authenticate_token(text + "x") is None
    assert authenticate_token("") is None


@pytest.mark.parametrize("column", ["expires_at", "revoked_at"])
def test_an_expired_or_revoked_token_is_dead(ada, column):
    token, text = create_token(user=ada, kind="personal", scopes=["tools:read"])
    ApiToken.objects.filter(pk=token.pk).update(**{column: clock.now()})

    assert authenticate_token(text) is None


def test_a_token_dies_with_its_user(ada):
    _, text = create_token(user=ada, kind="personal", scopes=["tools:read"])
    ada.is_active = False
    ada.save()

    assert authenticate_token(text) is None


def test_use_is_noted_at_most_once_a_minute(ada, django_assert_num_queries):
    token, text = create_token(user=ada, kind="personal", scopes=["tools:read"])
    with django_assert_num_queries(2):
        authenticate_token(text)
    with django_assert_num_queries(1):
        authenticate_token(text)

    ApiToken.objects.filter(pk=token.pk).update(last_used_at=clock.now() - timedelta(seconds=61))
    with django_assert_num_queries(2):
        authenticate_token(text)


def run(**options: str | int) -> str:
    """Run the command; return what it printed."""
    out = StringIO()
    call_command("create_token", **options, stdout=out)
    return out.getvalue()


def test_the_command_prints_the_token_and_nothing_else(ada):
    text = run(user="ada", kind="agent", scopes="tools:read, calls:create", name="planner", days=7).strip()

    token = authenticate_token(text)
    assert token is not None
    assert (token.name, token.kind, token.scopes) == ("planner", "agent", ["tools:read", "calls:create"])


@pytest.mark.parametrize("wrong", [{"user": "nobody"}, {"scopes": "approvals:decide"}, {"scopes": ","}, {"days": 1000}])
def test_the_command_says_what_is_wrong(ada, wrong):
    with pytest.raises(CommandError):
        run(**{"user": "ada", "kind": "agent", "scopes": "tools:read", **wrong})
