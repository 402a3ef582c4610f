"""The page of settings: all are listed, and no secret is shown."""

import pytest
from django.conf import settings as live_settings

from config.settings_page import redis_fault, setting_rows, setting_texts
from tests.house.source import ROOT, settings_read
from tests.pages import Pages

SECRETS = {
    "DATABASE_URL": "postgres://user:SECRET1@db.example/toolgate?sslpassword=SECRET2",
    "REDIS_URL": "redis://:SECRET3#SECRET3/SECRET3@cache.example/0",
    "TOOLGATE_AUDIT_KEY": "SECRET4",
    "TOOLGATE_METRICS_TOKEN": "SECRET5",
    "TOOLGATE_NOTIFY_URLS": ["slack://SECRET6/SECRET7"],
    "TOOLGATE_SECRET_KEYS": ["SECRET8"],
}


def test_every_setting_is_listed() -> None:
    assert {text.name for texts in setting_texts().values() for text in texts} == settings_read(ROOT)


def test_secrets_are_not_shown(monkeypatch, settings) -> None:
    monkeypatch.setenv("TOOLGATE_EMAIL_URL", "smtp://user:SECRET9@mail.example")
    for name, value in SECRETS.items():
        setattr(settings, name, value)
    rows = {row.text.name: row for rows in setting_rows().values() for row in rows}
    assert "SECRET" not in str([row.value for row in rows.values()])
    assert all(rows[name].is_set for name in (*SECRETS, "TOOLGATE_EMAIL_URL"))
    assert rows["DATABASE_URL"].value == "postgres://db.example/toolgate"
    assert (rows["TOOLGATE_MAX_PENDING_PER_TOKEN"].value, rows["DEBUG"].value) == ("0", "off")


def test_redis_that_does_not_answer_is_named_without_its_address(settings) -> None:
    settings.REDIS_URL = "redis://:SECRET@127.0.0.1:1/0"
    assert redis_fault() == "does not answer (ConnectionError). Check that it runs, and check REDIS_URL."


@pytest.mark.django_db
def test_page_has_settings_and_version(admin) -> None:
    text = Pages(admin).open("/settings/")
    assert "TOOLGATE_UNDO_SECONDS" in text
    assert f"Toolgate {live_settings.SPECTACULAR_SETTINGS['VERSION']}" in text
