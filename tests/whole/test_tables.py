"""Tests start with the tables as migrations left them."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import TransactionTestCase

from tests import rows


class Committing(TransactionTestCase):
    """Ends as the tests that commit do."""

    serialized_rollback = True

    def end(self):
        self._fixture_teardown()  # type: ignore[attr-defined]


@pytest.mark.django_db(transaction=True)
def test_what_a_test_has_committed_is_gone_after_it_and_what_migrations_wrote_is_there():
    before = rows.read([Group])
    assert before[Group]
    Group.objects.all().delete()
    User.objects.create(username="committed")
    Committing().end()
    assert rows.read([Group]) == before
    assert not User.objects.exists()
