"""The consent page: the outlook that it shows, the limits that a person sets, and what they consent to."""

from datetime import timedelta

import pytest
from django.test import Client

from catalog.connections.models import Connection
from catalog.models import ApiToken
from tests.approvals.factories import add_policy
from tests.catalog.connections.oauth_client import OAuthClient
from tests.pages import Pages

pytestmark = pytest.mark.django_db
ANYTHING = {"max_level": "", "category_choice": "any", "source_choice": "any", "days": "7"}


def decide(client, user, **fields):
    """Send the form of the consent page; return the response."""
    browser = Client()
    browser.force_login(user)
    return browser.post(client.address(), ANYTHING | fields)


def test_page_tells_what_calls_meet_for_this_person_now(stage, ada, ben):
    add_policy(1, effect="hold", tool="cautious", requester="ada", stages=[{"group": "reviewer", "count": 2}])
    add_policy(2, effect="deny", tool="private", message="No.")
    client = OAuthClient.registered(client_name="Claude")
    pages = Pages(ada)
    html = pages.open(client.address())
    assert "Claude" in html and "127.0.0.1" in html and "Ada" in html
    outlook = pages.context["outlook"]
    assert "2 reviewers" in {group.key for group in outlook.waiting}
    assert [tool.name for tool in outlook.refused] == ["private"]
    assert pages.context["may_call"]
    theirs = Pages(ben)
    theirs.open(client.address())
    assert "2 reviewers" not in {group.key for group in theirs.context["outlook"].waiting}


def test_limits_are_shown_before_and_kept_after_the_consent(stage, ada):
    client = OAuthClient.registered()
    shown = decide(client, ada, decision="show", max_level="safe")
    assert shown.status_code == 200 and not ApiToken.objects.exists()
    assert {tool.level for tool in shown.context["outlook"].tools} == {"safe"}
    incomplete = decide(client, ada, decision="show", category_choice="only")
    assert not incomplete.context["outlook"].tools
    wrong = decide(client, ada, decision="allow", category_choice="only")
    assert wrong.status_code == 422 and not Connection.objects.exists()
    allowed = decide(client, ada, decision="allow", max_level="safe", days="7")
    assert allowed.status_code == 303
    client.receive(allowed)
    client.exchange()
    token = ApiToken.objects.get()
    assert token.limits == {"max_level": "safe"}
    assert timedelta(days=6) < token.expires_at - token.created_at <= timedelta(days=7)


def test_person_without_the_role_cannot_let_it_call(stage, vera):
    pages = Pages(vera)
    pages.open(OAuthClient.registered().address())
    assert not pages.context["may_call"]
