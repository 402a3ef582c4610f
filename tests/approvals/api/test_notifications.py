"""REST endpoints of notification preferences and deliveries."""

import pytest

from approvals.messaging import senders
from approvals.messaging.addresses import decrypt_address
from approvals.models import AuditEntry, Delivery, NotificationChoice
from approvals.notifications import delivery as notifications_delivery
from tests.approvals.factories import SECRET_HOOK, ask, delivery_to
from tests.rest import Rest, agent, wrong_paths

pytestmark = pytest.mark.django_db
OTHER = "https://hooks.example.org/T1/another-token"


def test_mail_is_the_default(rosa):
    usual = {"by_mail": True, "addresses": [], "quiet_from": None, "quiet_until": None, "time_zone": "UTC"}
    assert Rest(rosa).get("notifications/").json() == usual
    assert not NotificationChoice.objects.exists()


def test_omitted_preferences_are_kept(rosa):
    rest = Rest(rosa)
    hours = {"quiet_from": "22:00", "quiet_until": "07:30", "time_zone": "Europe/Berlin"}
    assert rest.patch("notifications/", hours).json() | hours | {"by_mail": True} == rest.get("notifications/").json()
    rest.patch("notifications/", {"by_mail": False, "quiet_until": "08:00"})
    assert rest.get("notifications/").json() | {"by_mail": False, "quiet_from": "22:00", "quiet_until": "08:00"} == (
        rest.get("notifications/").json()
    )
    cleared = rest.patch("notifications/", {"quiet_from": None, "quiet_until": None}).json()
    assert (cleared["quiet_from"], cleared["by_mail"], cleared["time_zone"]) == (None, False, "Europe/Berlin")


def test_a_mask_keeps_its_address(rosa):
    rest = Rest(rosa)
    first, second = rest.patch("notifications/", {"addresses": [SECRET_HOOK, OTHER]}).json()["addresses"]
    assert first != second and "token" not in first + second
    assert rest.patch("notifications/", {"addresses": [second, "rosa@example.org"]}).json()["addresses"] == [
        second,
        "rosa@example.org",
    ]
    kept = NotificationChoice.objects.get(person=rosa).addresses
    assert [decrypt_address(each["channel"], each["ciphertext"]).text for each in kept] == [OTHER, "rosa@example.org"]
    entry = AuditEntry.objects.filter(action="notifications.changed").latest("seq")
    assert entry.details_json == {"notifications": "rosa", "added": ["mail"], "removed": ["webhook"]}


WRONG: list[tuple[dict[str, object], str]] = [
    ({"addresses": [SECRET_HOOK, "nobody"]}, "addresses.1"),
    ({"quiet_from": "22:00"}, "quiet_from"),
    ({"quiet_from": "late", "quiet_until": "7:00"}, "quiet_from"),
    ({"time_zone": "Moon/Base"}, "time_zone"),
    ({"adresses": []}, "adresses"),
]


def test_invalid_choices_are_refused_with_their_path_and_not_stored(rosa):
    rest = Rest(rosa)
    answers = [(body, path, rest.patch("notifications/", body)) for body, path in WRONG]
    assert [
        (body, answer.content)
        for body, path, answer in answers
        if (answer.status_code, wrong_paths(answer)) != (422, [path])
    ] == []
    assert not NotificationChoice.objects.filter(person=rosa).exclude(addresses=[], quiet_from=None).exists()


def test_agents_may_not_use_notifications(rosa):
    assert agent(rosa).get("notifications/").status_code == 403
    assert agent(rosa).patch("notifications/", {"by_mail": False}).status_code == 403
    assert agent(rosa).get("notifications/deliveries/").status_code == 403


def test_users_see_their_own_deliveries_and_administrators_all(rosa, tomas, admin):
    mine, other = delivery_to(rosa), delivery_to(tomas, status="failed", last_error="No answer.")
    assert [each["id"] for each in Rest(rosa).get("notifications/deliveries/").json()["results"]] == [mine.pk]
    assert Rest(rosa).get("audit/deliveries/").status_code == 403
    assert [each["id"] for each in Rest(admin).get("audit/deliveries/").json()["results"]] == [other.pk, mine.pk]
    (failed,) = Rest(admin).get("audit/deliveries/", status="failed").json()["results"]
    assert (failed["id"], failed["person"], failed["error"]) == (other.pk, "tomas", "No answer.")


def test_an_administrator_retries_a_failed_delivery(ada, rosa, admin, monkeypatch, settings):
    settings.TOOLGATE_NOTIFY_URLS = [SECRET_HOOK]
    request = ask(ada)
    failed = Delivery.objects.get(channel="webhook")
    Delivery.objects.filter(pk=failed.pk).update(status="failed", attempts=6, last_error="No answer.")
    path, sent = f"audit/deliveries/{failed.pk}/retry/", list[tuple[str, str]]()
    assert Rest(rosa).post(path).status_code == 403
    again = Rest(admin).post(path)
    assert (again.status_code, again.json()["status"]) == (200, "due")
    assert Rest(admin).post(path).status_code == 409
    entry = AuditEntry.objects.get(action="notifications.retried")
    assert (entry.actor, entry.object_ref) == (admin, f"delivery_{failed.pk}")

    def post(url, kind, document, *, identity):
        sent.append((url, document["facts"]["request"]))

    monkeypatch.setattr(senders, "post_webhook", post)
    assert (notifications_delivery.send_due(), sent) == (1, [(SECRET_HOOK, request.public_id)])
    failed.refresh_from_db()
    assert failed.status == "sent"


def test_only_a_failed_delivery_can_be_retried(rosa, admin):
    arrived = delivery_to(rosa, status="sent")
    assert Rest(admin).post(f"audit/deliveries/{arrived.pk}/retry/").status_code == 409
    assert Rest(admin).post("audit/deliveries/999999999999999999999/retry/").status_code == 404
    assert not AuditEntry.objects.filter(action="notifications.retried").exists()
