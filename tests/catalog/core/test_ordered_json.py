"""Schemas keep the order of their members on both databases."""

import pytest

from catalog.models import ToolVersion
from tests.approvals.factories import make_tool

pytestmark = [pytest.mark.db, pytest.mark.django_db]
SCHEMA = {"type": "object", "properties": {"zeta": {"type": "string"}, "b": {"default": None}, "alpha": {}}}


@pytest.mark.parametrize("output", [SCHEMA, None])
def test_members_keep_their_order(output):
    version = ToolVersion.objects.get(tool=make_tool())
    version.input_schema, version.output_schema = SCHEMA, output
    version.save()
    version.refresh_from_db()
    assert list(version.input_schema["properties"]) == ["zeta", "b", "alpha"]
    assert (version.input_schema, version.output_schema) == (SCHEMA, output)
    assert ToolVersion.objects.filter(pk=version.pk, output_schema__isnull=output is None).exists()
