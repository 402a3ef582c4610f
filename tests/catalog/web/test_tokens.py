"""Token pages: creation, details, revocation, permissions."""

import re

import pytest

from catalog.access import learnt_waits
from catalog.access.tokens import authenticate_token, create_token
from catalog.models import ApiToken, LearntWait
from tests.pages import Pages

pytestmark = pytest.mark.django_db
LIMITS = {"max_level": "", "category_choice": "any", "source_choice": "any"}
FIELDS = {"name": "laptop", "kind": "agent", "scopes": "calls:create", "days": "30", "hold_seconds": "", **LIMITS}
TEXT = re.compile(r'id="token-text"[^>]*>(tg_[^<]+)<')


def test_token_is_created_shown_once_changed_and_revoked(ada):
    pages = Pages(ada)
    assert "/profile/tokens/new/" in pages.client.get("/profile/tokens/").content.decode()
    pages.open("/profile/tokens/new/")
    assert [scope for scope, _ in pages.context["form"].fields["scopes"].choices] == [
        "tools:read",
        "calls:create",
        "plans:read",
        "plans:write",
        "approvals:read",
        "permissions:ask",
    ]
    fields = FIELDS | {"key": pages.field("key")}
    pages.send("/profile/tokens/new/", fields, status=201)
    text = TEXT.findall(pages.html)[0]
    token = authenticate_token(text)
    assert token is not None and (token.user, token.name, token.scopes) == (ada, "laptop", ["calls:create"])
    assert 'href="/connect/"' in pages.html
    pages.send("/profile/tokens/new/", fields)
    assert TEXT.findall(pages.html) == [] and ApiToken.objects.count() == 1
    for _ in range(2):
        learnt_waits.record_cut_off(token.pk, "codex", 10.0)
    pages.open(f"/tokens/{token.pk}/")
    assert [wait.seconds for wait in pages.context["row"].learnt_waits] == [8.0]
    assert f'href="/sessions/?token={token.pk}"' in pages.html
    pages.send(f"/tokens/{token.pk}/waits/")
    pages.send(f"/tokens/{token.pk}/change/", {"name": "desk", "hold_seconds": "7"})
    token.refresh_from_db()
    assert (token.name, token.hold_seconds, LearntWait.objects.exists()) == ("desk", 7, False)
    pages.send(f"/tokens/{token.pk}/change/", {"name": "desk", "hold_seconds": "601"}, status=422)
    assert 'id="id_hold_seconds_error"' in pages.html
    pages.open(f"/tokens/{token.pk}/")
    pages.send(f"/tokens/{token.pk}/revoke/")
    assert authenticate_token(text) is None
    pages.open("/profile/tokens/")
    assert [row.standing.label for row in pages.context["rows"]] == ["Ended"]


def test_invalid_field_is_marked_and_nothing_created(ada):
    pages = Pages(ada)
    for field, value in (("name", ""), ("scopes", "audit:read"), ("days", "366"), ("kind", "robot")):
        pages.open("/profile/tokens/new/")
        pages.send("/profile/tokens/new/", FIELDS | {"key": pages.field("key"), field: value}, status=422)
        assert f'id="id_{field}_error"' in pages.html
    assert not ApiToken.objects.exists()


def test_administrators_see_everyones_tokens_and_others_their_own(ada, ben, admin, django_assert_max_num_queries):
    mine, other = (create_token(user=user, kind="agent", scopes=["calls:create"])[0] for user in (ada, ben))
    pages = Pages(ada)
    pages.open(f"/tokens/{other.pk}/", status=404)
    assert pages.client.post(f"/tokens/{other.pk}/revoke/").status_code in (403, 404)
    assert pages.client.get("/tokens/")["Location"] == "/profile/tokens/"
    pages = Pages(admin)
    pages.open("/tokens/")
    assert [row.token for row in pages.context["rows"]] == [other, mine]
    pages.open("/tokens/?owner=ada")
    assert [row.token for row in pages.context["rows"]] == [mine]
    pages.open(f"/tokens/{mine.pk}/")
    pages.send(f"/tokens/{mine.pk}/revoke/")
    mine.refresh_from_db()
    assert mine.revoked_at is not None
    with django_assert_max_num_queries(11):
        pages.open("/tokens/")


def test_limits_are_chosen_for_a_new_token_and_changed_later(stage, ada):
    pages = Pages(ada)
    pages.open("/profile/tokens/new/")
    everything = pages.context["tool_count"]
    fields = FIELDS | {"key": pages.field("key"), "max_level": "cautious"}
    pages.send("/profile/tokens/new/", fields, status=201)
    token = ApiToken.objects.get()
    assert token.limits == {"max_level": "cautious"}
    pages.open(f"/tokens/{token.pk}/")
    assert 0 < pages.context["tool_count"] < everything
    path = f"/tokens/{token.pk}/limits/"
    for wrong in ({"category_choice": "only"}, {"source_choice": "only", "sources": "nowhere"}, {"max_level": "x"}):
        pages.send(path, LIMITS | wrong, status=422)
    pages.send(path, LIMITS | {"source_choice": "only", "sources": ["tests.tools_for_tests"]})
    token.refresh_from_db()
    assert token.limits == {"sources": ["tests.tools_for_tests"]}
    pages.send(path, LIMITS)
    token.refresh_from_db()
    assert token.limits is None
    pages.send("/profile/tokens/tools/", LIMITS | {"max_level": "safe"})
    assert 0 < pages.context["tool_count"] < everything
