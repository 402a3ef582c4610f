"""Registration tools: look-up, and mail after approval."""

import json
from typing import Any

import pytest
from django.core import mail

from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.dispatch.arguments import CallArguments
from catalog.testing import invoke, make_context
from catalog.tools import Preview
from catalog.toolsets import registrations

lookup_registration = registrations.lookup_registration.as_tool()
send_registration_email = registrations.send_registration_email.as_tool()

BADGE = {"registration_id": "R-20400", "document": "badge"}


def shown(arguments: dict[str, Any]) -> Preview:
    preview = pipeline.preview_call(send_registration_email, CallArguments(arguments), make_context())
    assert preview is not None
    return preview


@pytest.mark.parametrize("identifier", ["R-20401", "r-20401", " two@example.org ", "TWO@EXAMPLE.ORG"])
def test_a_registration_is_found_by_email_or_id(identifier):
    result = invoke(lookup_registration, {"identifier": identifier})
    assert result.success and result.value is not None and result.value["badge"] == "B-7101"


def test_an_unknown_registration_is_a_question_for_the_user():
    result = invoke(lookup_registration, {"identifier": "nobody@example.org"})
    assert (result.success, result.value) == (False, None)
    assert (
        result.user_message == "I could not find that registration. Could you check the email or the registration ID?"
    )


@pytest.mark.parametrize("arguments", [{}, {"identifier": ""}, {"identifier": "  "}])
def test_without_an_identifier_the_user_is_asked(arguments):
    result = invoke(lookup_registration, arguments)
    assert result.message.endswith(
        "I'd be happy to help! Could you provide your registration email or registration ID?"
    )


def test_the_options_say_what_the_tools_handle():
    assert lookup_registration.returns_private_data and lookup_registration.rate_group == "registration_lookup"
    assert [str(rate) for rate in lookup_registration.rates] == ["1/5s", "5/min", "20/h"]
    assert [str(rate) for rate in send_registration_email.rates] == ["1/30s", "2/min", "5/h"]
    assert send_registration_email.safety_level is SafetyLevel.DANGEROUS
    assert send_registration_email.returns_private_data
    assert (send_registration_email.rate_group, send_registration_email.reversibility) == ("email_send", "irreversible")


def test_the_mail_is_shown_before_it_is_sent():
    preview = shown(BADGE | {"note": "Here it is again."})
    assert preview.summary == "Mail the badge of R-20400 to its holder"
    assert preview.after is not None
    assert "To: one@example.org\nSubject: Your badge for registration R-20400\n" in preview.after
    assert "Here it is again.\n\nDear Sample Attendee One,\n\nyour badge has the number B-7100." in preview.after
    assert mail.outbox == []


def test_the_mail_that_is_sent_is_the_one_shown():
    preview = shown(BADGE)
    result = invoke(send_registration_email, BADGE)
    assert result.success and result.value == {"registration_id": "R-20400", "document": "badge"}
    [sent] = mail.outbox
    assert preview.after == f"From: {sent.from_email}\nTo: one@example.org\nSubject: {sent.subject}\n\n{sent.body}"


def test_a_registration_that_changed_since_is_not_mailed(tmp_path, monkeypatch):
    token = shown(BADGE).state_token
    changed = json.loads(registrations.REGISTRATIONS_FILE.read_text())
    changed["registrations"][0]["email"] = "elsewhere@example.org"
    (tmp_path / "registrations.json").write_text(json.dumps(changed))
    monkeypatch.setattr(registrations, "REGISTRATIONS_FILE", tmp_path / "registrations.json")
    registrations._load_registrations.cache_clear()
    try:
        call = send_registration_email.call(BADGE, make_context(target_state=token))
        with pytest.raises(Exception, match="has changed since this mail was approved"):
            call.send(None)
    finally:
        registrations._load_registrations.cache_clear()
    assert mail.outbox == []


def test_a_mail_to_nobody_cannot_be_asked_for():
    with pytest.raises(Exception, match="I could not find that registration"):
        shown({"registration_id": "R-1"})
    assert not invoke(send_registration_email, {"registration_id": "R-1"}).success
