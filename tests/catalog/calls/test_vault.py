"""Stored secrets: encryption, key rotation, binding to their location, one query."""

import json

import pytest
from cryptography.fernet import Fernet

from catalog.calls import vault
from catalog.calls.vault import SecretGone, SecretScope
from catalog.errors import ParameterError
from catalog.models import CallSecret

pytestmark = pytest.mark.db

HERE = SecretScope("plan_x", "1")
KEY = "AKIA" + "Q7" * 8


@pytest.fixture
def text(db):
    """The stored text of arguments with a kept secret."""
    sealed = vault.redact_arguments(None, {"note": f"use {KEY}"})
    vault.store_secrets(HERE, sealed.secrets)
    return sealed.text


def test_stored_secret_is_encrypted_and_restored(text, django_assert_num_queries):
    row = CallSecret.objects.get()
    assert KEY not in text + row.ciphertext
    with django_assert_num_queries(1):
        assert vault.load_complete(text, "plan_x") == {"note": f"use {KEY}"}


def test_arguments_without_secrets_cost_no_query(db, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert vault.load_complete('{"a":1}', "plan_x") == {"a": 1}
        vault.store_secrets(HERE, ()) if vault.redact_arguments(None, {"a": 1}).secrets else None


def test_key_rotation_keeps_stored_secrets(text, settings):
    """A new first key encrypts, the old one still decrypts; without the old one the secret is gone."""
    old, new = settings.TOOLGATE_SECRET_KEYS[0], Fernet.generate_key().decode()
    settings.TOOLGATE_SECRET_KEYS = [new, old]
    assert vault.load_complete(text, "plan_x") == {"note": f"use {KEY}"}
    again = vault.redact_arguments(None, {"note": f"use {KEY}"})
    assert again.text != text
    vault.store_secrets(HERE, again.secrets)
    settings.TOOLGATE_SECRET_KEYS = [new]
    assert vault.load_complete(again.text, "plan_x") == {"note": f"use {KEY}"}
    with pytest.raises(SecretGone, match="aws_access_key"):
        vault.load_complete(text, "plan_x")


@pytest.mark.parametrize("other", ["plan_y", "plan_"])
def test_another_plan_has_other_secrets(text, other):
    with pytest.raises(SecretGone):
        vault.load_complete(text, other)


def test_a_secret_is_bound_to_its_path(db):
    one, two = (json.loads(vault.redact_arguments(None, {name: KEY}).text)[name]["$secret"] for name in ("a", "b"))
    assert one != two


def put_back(text, arguments):
    """Return what comes back of arguments that a person changed, once it is sealed again."""
    restored = vault.restore_edited_arguments(arguments, text, "plan_x")
    whole = restored.in_place()
    restored.check(vault.redact_arguments(None, whole))
    return whole


def test_secret_is_restored_in_place(text):
    placeholder = '{"$secret":"aws_access_key"}'
    assert put_back(text, {"note": f"{placeholder} or {placeholder}!"}) == {"note": f"{KEY} or {KEY}!"}
    assert put_back(text, {"more": 1}) == {"more": 1}
    assert put_back(text, {"note": {"$secret": "aws_access_key"}}) == {"note": KEY}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"more": {"$secret": "aws_access_key"}}, "more"),
        ({"more": [{"deep": 'use {"$secret":"aws_access_key"}'}]}, "more.0.deep"),
        ({"note": {"$secret": "aws_access_key"}, "more": '{"$secret":"aws_access_key"}'}, "more"),
        ({'use {"$secret":"aws_access_key"}': 1}, ""),
        ({"note": 'x{"$secret":"aws_access_key"}x'}, "note"),
        ({"note": '{"$secret":"aws_access_key"} x{"$secret":"aws_access_key"}x'}, "note"),
    ],
)
def test_secret_cannot_be_moved(text, arguments, path):
    """Also not into other text that would hide its shape from detection."""
    with pytest.raises(ParameterError) as refusal:
        put_back(text, arguments)
    assert [(each["path"], each["code"]) for each in refusal.value.details["errors"]] == [(path, "secret_moved")]
    assert KEY not in str(refusal.value.details)


def test_storing_a_secret_again_changes_nothing(text):
    vault.store_secrets(HERE, vault.redact_arguments(None, {"note": f"use {KEY}"}).secrets)
    assert CallSecret.objects.count() == 1


def test_secrets_of_a_step_are_deleted(text):
    vault.store_secrets(SecretScope("plan_x", "2"), vault.redact_arguments(None, {"b": KEY}).secrets)
    vault.delete_secrets(HERE)
    assert CallSecret.objects.get().step_ref == "2"
    vault.delete_secrets(SecretScope("plan_x"))
    assert not CallSecret.objects.exists()
