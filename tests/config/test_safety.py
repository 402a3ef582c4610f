"""Refusal of unsafe settings, with their names."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from config import setting_checks


def refused(check, *arguments, **options) -> bool:
    """Return whether a check refuses."""
    try:
        check(*arguments, **options)
    except ImproperlyConfigured:
        return True
    return False


def test_keys_are_long_and_varied():
    assert refused(setting_checks.check_key, "SECRET_KEY", "short", least=32)
    assert refused(setting_checks.check_key, "SECRET_KEY", "a" * 50, least=32)
    assert not refused(setting_checks.check_key, "SECRET_KEY", "for-the-tests-only-for-the-tests-only", least=32)


@pytest.mark.parametrize(
    "url",
    [
        *("toolgate.example", "//toolgate.example", "ftp://toolgate.example", "https://", "http://[::1", ""),
        *(
            "https://host/toolgate",
            "https://host?a=b",
            "https://host#a",
            "https://me:secret@host",
            "https://host:99999",
        ),
        *("https://host :80", "https://host\n", "https://host:0"),
    ],
)
def test_address_needs_scheme_and_host_and_nothing_else(url):
    assert refused(setting_checks.check_url_setting, "TOOLGATE_URL", url)


def test_address_may_have_a_port():
    for url in ("https://toolgate.example", "http://127.0.0.1:8000", "http://[::1]:8000"):
        assert not refused(setting_checks.check_url_setting, "TOOLGATE_URL", url)


def test_hosts_of_everybody_are_refused():
    assert [host for host in ("*", ".com", ".") if not refused(setting_checks.check_hosts, [host])] == []
    assert not refused(setting_checks.check_hosts, ["localhost", "[::1]", ".toolgate.example", "toolgate.example"])


def test_variables_of_programs_are_names_and_not_all():
    for pattern in ("*", "_*", "A=B", "A B", "A-B"):
        assert refused(setting_checks.check_variable_patterns, [pattern]), pattern
    assert setting_checks.check_variable_patterns([" WIKI_URL", "ACME_*", ""]) == ["WIKI_URL", "ACME_*"]


def test_workspace_must_not_hold_what_is_kept_from_tools(tmp_path: Path):
    kept = [tmp_path / "var" / "toolgate.sqlite3"]
    assert refused(setting_checks.check_workspace, tmp_path, kept)
    assert refused(setting_checks.check_workspace, tmp_path / "other" / ".." / "var", kept)
    assert not refused(setting_checks.check_workspace, tmp_path / "var" / "workspace", kept)


def test_misspelt_name_is_refused_with_the_one_that_was_meant():
    known = ["TOOLGATE_THREADS", "TOOLGATE_URL", "SECRET_KEY"]
    for name in ("TOOLGATE_THREAD", "TOOLGATE_TRHEADS", "TOOLGATE_URLS"):
        with pytest.raises(ImproperlyConfigured, match=f"{name}\\."):
            setting_checks.check_setting_names([name], known)
    given = ["TOOLGATE_THREADS", "TOOLGATE_SOMETHING_ELSE", "SECRET_KEYS", "TOOLGATE_TEST_SEED"]
    assert setting_checks.check_setting_names(given, known) == ["TOOLGATE_SOMETHING_ELSE"]
    assert setting_checks.edit_distance("kitten", "sitting") == 3
