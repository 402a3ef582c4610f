"""Test of the warning that a model is offered only some of the allowed tools."""

import pytest

from plans.agents import tool_calls
from tests.plans.agents.scripted import make_agent

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("most", "is_told"), [(1, True), (128, False)])
def test_page_warns_when_fewer_tools_are_offered(client, stage, admin, monkeypatch, *, most, is_told):
    monkeypatch.setattr(tool_calls, "MOST_TOOLS", most)
    agent = make_agent()
    client.force_login(admin)
    page = client.get(f"/agents/{agent.name}/").content.decode()
    assert ("data-limited" in page.split('id="offers"')[1].split("</header>")[0]) is is_told
