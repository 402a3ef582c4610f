"""Checkpoints to a webhook: signed, in order, by a thread that nobody waits for."""

import json

import pytest

from approvals import checkpoint_webhook
from approvals.audit import Line, append
from approvals.checkpoints import newest
from approvals.models import Instance
from approvals.webhooks import post
from approvals.witness import note
from catalog.egress import NotSent
from tests.catalog.test_egress import taking
from tests.waiting import eventually

pytestmark = pytest.mark.django_db


def test_they_arrive_in_order(settings, checkpoints):
    """As the file has them, each with its MAC, and signed like every webhook."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with taking() as server:
        settings.TOOLGATE_AUDIT_WEBHOOK = f"http://127.0.0.1:{server.server_port}/200"
        for _ in range(3):
            append(Line(action="tool.changed"))
            assert note()
        eventually(lambda: len(server.taken) == 3)
    sent = [json.loads(body) for _, _, body in server.taken]
    assert [each["seq"] for each in sent] == [1, 2, 3] and {each["type"] for each in sent} == {"audit.checkpoint"}
    assert all(headers["Toolgate-Signature"].startswith("t=") for _, headers, _ in server.taken)
    last = newest(Instance.objects.get(pk=1).name)
    assert last is not None and sent[-1]["mac"] == last.mac()


def test_what_is_not_taken_is_sent_again(settings, checkpoints, monkeypatch):
    """Until it arrives; whoever wrote it went on long ago."""
    tries: list[int] = []

    def fail_twice(*args: object) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise NotSent("nobody there")

    monkeypatch.setattr("approvals.webhooks.post", fail_twice)
    monkeypatch.setattr(checkpoint_webhook, "PAUSES", (0.01,))
    settings.TOOLGATE_AUDIT_WEBHOOK = "https://hooks.example.org/"
    append(Line(action="tool.changed"))
    assert note()
    eventually(lambda: len(tries) == 3)


def test_without_a_webhook_nothing_is_sent(settings, checkpoints, monkeypatch):
    monkeypatch.setattr(checkpoint_webhook, "_deliver", lambda checkpoint: pytest.fail("sent"))
    settings.TOOLGATE_AUDIT_WEBHOOK = ""
    append(Line(action="tool.changed"))
    assert note()


def test_it_goes_only_where_requests_may_go(settings):
    settings.TOOLGATE_EGRESS_ALLOW = []
    with taking() as server:
        with pytest.raises(NotSent):
            post(f"http://127.0.0.1:{server.server_port}/200", "audit.checkpoint", {})
        assert server.taken == []
