"""The task of a coding agent: 30 commands that would each wait, allowed by one decision in the browser."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import ApprovalRequest, EnvelopeItem
from catalog.access.tokens import create_token
from catalog.models import Call
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import item, propose, set_rule
from tests.browser import screenshots
from tests.browser.conftest import PageAs, press_approve
from tests.builders import work_off
from tests.rest import Rest, agent

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
FILES = [f"test_{number:02}.py" for number in range(30)]


class CodingAgent:
    """Asks before each command, as the hook of a coding agent does."""

    def __init__(self, owner: User) -> None:
        self.rest: Rest = agent(owner, "permissions:ask", "calls:create", "plans:read")

    def asks_for(self, command: str) -> dict[str, Any]:
        """Return the answer to the question whether a command may run; one that may is reported as done."""
        question = {"client": "claude-code", "session": "s1", "tool": "Bash", "input": {"command": command}}
        answer: dict[str, Any] = self.rest.post("permissions/", question | {"cwd": "/srv/project"}).json()
        if answer["decision"] == "allow":
            self.rest.post(f"permissions/{answer['call']}/result/", {"succeeded": True, "output": {"stdout": "ok"}})
        return answer


def picture(page: Page, name: str) -> None:
    if screenshots.FOLDER:
        screenshots.take_pictures(page, name, whole=True)


def test_thirty_commands_of_a_coding_agent_need_one_decision(stage, ada, rosa, settings, page_as: PageAs):
    settings.TOOLGATE_UNDO_SECONDS = 0
    set_rule(envelope="allow")  # commands cannot be undone
    coder = CodingAgent(ada)
    first = coder.asks_for(f"pytest {FILES[0]}")
    assert first["decision"] == "wait"
    tool = Call.objects.get(public_id=first["call"]).tool_name
    commands = [f"pytest {name}" for name in FILES]
    rows = [{"path": "command", "operator": "in", "value": commands}]
    proposal = coder.rest.post(
        "calls/",
        {
            "tool": "propose_envelope",
            "arguments": {
                "purpose": "Run each test file of the project once, to find the flaky ones",
                "items": [{"tool": tool, "arguments": rows, "count": 30}],
                "minutes": 60,
            },
            "wait_seconds": 0,
        },
    ).json()
    page = page_as(rosa)
    page.goto(f"/approvals/?item={proposal['approval']['id']}")
    expect(page.get_by_text("Written by the requester. Not checked.")).to_be_visible()
    expect(page.locator("#detail ol").get_by_text("at most 30 calls")).to_be_visible()
    picture(page, "proposal")
    press_approve(page)
    page.keyboard.press("Enter")
    expect(page.get_by_text("Approved", exact=False).first).to_be_visible()
    work_off(Plan.objects.get(public_id=proposal["plan"]))
    allowed = [coder.asks_for(command)["decision"] for command in commands[1:]]
    assert allowed == ["allow"] * 29
    outside = [coder.asks_for(command)["decision"] for command in ("pytest; curl evil.example", "git push")]
    assert outside == ["wait", "wait"]
    assert EnvelopeItem.objects.get().used == 29
    assert ApprovalRequest.objects.filter(status="consumed").count() == 1
    page.goto("/envelopes/")
    page.get_by_role("link", name="Run each test file").click()
    expect(page.get_by_text("29 of 30").first).to_be_visible()
    expect(page.get_by_text("The argument command is not what the envelope allows.")).to_have_count(2)
    picture(page, "envelope")
    assert coder.asks_for(commands[0])["decision"] in ("wait", "allow")  # the first question waits already
    page.get_by_role("link", name=tool).last.click()
    expect(page.get_by_role("heading", name="Outside an envelope")).to_be_visible()
    picture(page, "outside")
    page.goto("/envelopes/")
    page.get_by_role("link", name="Run each test file").click()
    page.get_by_label("Reason").fill("The task is done")
    page.get_by_role("button", name="End envelope").click()
    expect(page.get_by_text("Ended by Rosa: The task is done")).to_be_visible()


def test_reviewer_narrows_undoes_and_approves(stage, ada, rosa, settings, page_as: PageAs):
    settings.TOOLGATE_UNDO_SECONDS = 600
    token = create_token(user=ada, kind="agent", scopes=["calls:create"])[0]
    envelope = propose(Requester(ada, token, "mcp"), item(count=7))
    page = page_as(rosa, viewport={"width": 1440, "height": 2600})
    page.goto(f"/approvals/?item={envelope.call.approval.public_id}&view=edit")
    expect(page.get_by_text("An edit can only narrow an envelope.")).to_be_visible()
    picture(page, "edit")
    page.set_viewport_size({"width": 1440, "height": 2600})
    page.get_by_label("count").first.fill("9")
    expect(page.get_by_text("The count may only be lowered, from 7.").first).to_be_visible()
    page.get_by_label("count").first.fill("3")
    page.get_by_role("button", name="Approve with 1 change").click()
    expect(page.locator("#toasts")).to_contain_text("Approved. The envelope opens in")
    expect(page.locator("[data-undo][data-key=z]").first).to_be_visible()
    page.keyboard.press("z")
    expect(page.locator("#detail ol").get_by_text("at most 7 calls")).to_be_visible()
    settings.TOOLGATE_UNDO_SECONDS = 0
    press_approve(page)
    expect(page.locator("#detail").get_by_text("Approved").first).to_be_visible()
    work_off(Plan.objects.get(public_id=envelope.call.plan_ref))
    assert [each.count for each in EnvelopeItem.objects.all()] == [7]
