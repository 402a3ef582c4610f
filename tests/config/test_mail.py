"""TOOLGATE_EMAIL_URL: parsing and refused values."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.environment import read_email_url
from tests.corpus import faults


def test_smtp_starts_tls_and_names_its_sender():
    mail = read_email_url("smtp://desk:p%40ss@mail.example.org?from=desk@example.org")
    assert (mail.backend, mail.host, mail.port) == (
        "django.core.mail.backends.smtp.EmailBackend",
        "mail.example.org",
        587,
    )
    assert (mail.user, mail.password, mail.sender) == ("desk", "p@ss", "desk@example.org")
    assert (mail.use_tls, mail.use_ssl) == (True, False)


def test_smtps_is_encrypted_from_the_start():
    mail = read_email_url("smtps://mail.example.org")
    assert (mail.port, mail.use_tls, mail.use_ssl) == (465, False, True)


def test_tls_can_be_switched_off_for_one_machine():
    assert not read_email_url("smtp://127.0.0.1:25?tls=off").use_tls


def test_the_console_and_a_folder_need_no_host():
    assert read_email_url("console:").backend.endswith("console.EmailBackend")
    assert read_email_url("file:/var/mail%20box").folder == "/var/mail box"


def test_a_url_that_means_nothing_is_refused_without_its_password():
    cases = [
        ("mail.example.org", "must begin with one of"),
        ("http://mail.example.org", "must begin with one of"),
        ("smtp://:secret@", "has no host"),
        ("smtp://user:secret@host:99999", "its host or port is invalid"),
        ("smtp://user:secret@host?ssl=1", "unknown options: ssl"),
        ("smtp://host?tls=maybe", "tls can only be off"),
        ("smtps://host?tls=off", "tls can only be off"),
        ("smtp://host?from=a%0Ab", "single line"),
        ("file:", "has no folder"),
    ]

    def check(text, why):
        with pytest.raises(ImproperlyConfigured, match=why) as caught:
            read_email_url(text)
        assert "secret" not in str(caught.value)

    assert faults(check, cases) == {}
