"""Generated keys and errors of invalid keys."""

import stat
import threading

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from config.environment import KEY_GENERATORS, check_secret_keys, load_or_create_keys


def test_keys_are_made_once_for_their_owner_alone(tmp_path):
    path = tmp_path / "keys.env"
    made = load_or_create_keys(path)
    assert made.keys() == KEY_GENERATORS.keys()
    assert load_or_create_keys(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert check_secret_keys([made["TOOLGATE_SECRET_KEYS"]])


def test_a_file_of_an_earlier_version_gets_what_it_lacks(tmp_path):
    path = tmp_path / "keys.env"
    path.write_text("SECRET_KEY=old\nTOOLGATE_AUDIT_KEY=older")
    found: list[dict[str, str]] = []
    threads = [threading.Thread(target=lambda: found.append(load_or_create_keys(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found[0]["SECRET_KEY"], found[0]["TOOLGATE_AUDIT_KEY"]) == ("old", "older")
    assert [each for each in found if each != found[0]] == []
    assert path.read_text().count("TOOLGATE_SECRET_KEYS=") == 1


def test_a_wrong_key_is_named_by_its_place():
    with pytest.raises(ImproperlyConfigured, match="TOOLGATE_SECRET_KEYS: key 2 of 2") as refusal:
        check_secret_keys([Fernet.generate_key().decode(), "hunter2"])
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(ImproperlyConfigured, match="TOOLGATE_SECRET_KEYS must name at least one key"):
        check_secret_keys([])
