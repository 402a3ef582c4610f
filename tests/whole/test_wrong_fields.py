"""Focus on the first invalid field of long forms."""

from html.parser import HTMLParser

import pytest
from django.test import Client

from tests.approvals.factories import POLICY_ROWS
from tests.builders import act, make_plan, work_off
from tests.plans.agents.scripted import make_agent

AGENT = {"name": "researcher", "instructions": "Find it out.", "max_level": "cautious", "strategy": "react"}
POLICY = POLICY_ROWS | {
    "name": "Payments",
    "tool": "send_*",
    "effect": "hold",
    "on_expiry": "fail",
    "stage-0-count": "1",
    "stage-0-group": "reviewer",
}
FORMS = {
    "agent": ("/agents/new/", AGENT | {"rounds": "many", "do": "save"}, "f-rounds"),
    "agent, texts": (
        "/agents/new/",
        AGENT | {"instructions": "", "rounds": "many", "do": "save"},
        "f-instructions",
    ),
    "task": ("/agents/scout/task/", {"task": "", "key": "k"}, "task"),
    "policy, calls": ("/policies/new/", POLICY | {"name": "", "do": "save"}, "f-name"),
    "policy, outcome": ("/policies/new/", POLICY | {"expires_minutes": "soon", "do": "save"}, "f-expires_minutes"),
    "policy, people": (
        "/policies/new/",
        POLICY | {"fresh_sign_in_minutes": "soon", "do": "save"},
        "f-fresh_sign_in_minutes",
    ),
    "simulator": (
        "/policies/simulator/",
        {"tool": "read_file", "drawn": "read_file", "mode": "json", "json": "{"},
        "simulate-json",
    ),
    "notifications": ("/profile/notifications/", {"quiet_from": "late", "quiet_until": "07:00"}, "id_quiet_from"),
    "new plan": ("/plans/new/", {"text": "{", "do": "check"}, "pj"),
    "change of a plan": ("/plans/{plan}/change/", {"text": "{", "do": "check"}, "pj"),
    "request": ("/ask/", {"request": "", "key": "k"}, "request"),
    "trial": ("/tools/read_file/try/", {"mode": "json", "json": "{", "do": "check"}, "try-json"),
}


class FirstFocus(HTMLParser):
    """Finds the element that a browser gives the focus to when it opens a page: the first that asks for it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Read one tag."""
        named = dict(attributes)
        if "autofocus" in named and not self.found:
            self.found = named.get("id") or tag


@pytest.fixture
def plan(stage, admin):
    """A plan of the administrator whose only step waits for people."""
    return work_off(make_plan(admin, act(1, "v1", "dangerous")))


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("form", FORMS)
def test_the_first_wrong_field_has_the_focus(admin, plan, settings, form):
    settings.TOOLGATE_MODEL = "openai:scripted"
    make_agent("scout")
    client = Client()
    client.force_login(admin)
    path, sent, wrong = FORMS[form]
    page = client.post(path.format(plan=plan.public_id), sent).content.decode()
    assert FirstFocus(page).found == wrong
