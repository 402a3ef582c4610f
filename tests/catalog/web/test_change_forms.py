"""Administrators' forms on the tool page: effects, errors at fields, permissions."""

from typing import Any

import pytest

from approvals.models import AuditEntry
from catalog.models import Implementation, Tool, ToolVersion
from tests.corpus import faults
from tests.pages import Pages

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("catalog")]
PAGE, CHANGE = "/tools/read_file/", "/tools/read_file/change/"


def change(pages: Pages, status: Any = 200, **fields: Any) -> str:
    """Send one of the forms of the page."""
    pages.open(PAGE)
    return pages.send(CHANGE, fields, status)


def tool() -> Tool:
    """Return the tool's current row."""
    return Tool.objects.select_related("current_version").get(name="read_file")


def version() -> ToolVersion:
    """Return the tool's current version."""
    return ToolVersion.objects.get(pk=tool().current_version_id or 0)


def test_tool_is_disabled_and_enabled(admin):
    pages = Pages(admin)
    assert "Disabled." in change(pages, what="enabled", enabled="no")
    assert not tool().enabled and 'name="enabled" value="yes"' in pages.html
    assert 'id="trying"' not in pages.html and "Nobody is asked" not in pages.html
    change(pages, what="enabled", enabled="yes")
    assert tool().enabled and AuditEntry.objects.filter(action="tool.disabled").exists()


def test_lowering_a_level_needs_a_reason(admin):
    pages = Pages(admin)
    change(pages, what="level", safety_level="dangerous")
    change(pages, 422, what="level", safety_level="safe")
    assert 'id="set-level-reason_error"' in pages.html and pages.html.count('aria-invalid="true"') == 1
    assert version().safety_level == "dangerous" and 'data-declared="safe"' in pages.html
    change(pages, what="level", safety_level="safe", reason="It only reads.")
    assert version().safety_level == "safe"


def test_a_description_is_written_over_the_authors(admin):
    pages, author = Pages(admin), tool().declared_description
    change(pages, what="description", description_override="Read <b>one</b> file.")
    page = pages.open(PAGE)
    assert version().description == "Read <b>one</b> file." and author in page
    assert "<b>one" not in pages.html
    change(pages, what="description", description_override="kept", do="authors")
    assert (tool().description_override, version().description) == ("", author)


def test_categories_are_set(admin):
    pages = Pages(admin)
    change(pages, what="categories", categories=" beta, alpha ,alpha,")
    assert [each.name for each in tool().categories.all()] == ["alpha", "beta"]
    change(pages, what="categories", do="authors")
    assert [each.name for each in tool().categories.all()] == ["filesystem"]


def test_weights_and_switches_are_set(admin):
    row = Implementation.objects.get(tool__name="read_file")
    pages = Pages(admin)
    change(pages, what="implementations", **{f"weight-{row.pk}": "7"})
    row.refresh_from_db()
    assert (row.weight, row.enabled) == (7, False)
    fields = {f"weight-{row.pk}": "7", f"enabled-{row.pk}": "1"}
    change(pages, what="implementations", **fields)
    assert AuditEntry.objects.filter(action="tool.implementation_set").count() == 2
    change(pages, what="implementations", **fields)
    assert AuditEntry.objects.filter(action="tool.implementation_set").count() == 2


def test_invalid_change_is_refused_at_its_field(admin):
    before, weight = tool().updated_at, f"weight-{Implementation.objects.get(tool__name='read_file').pk}"
    cases: list[tuple[str, dict[str, str]]] = [
        ("safety_level", {"what": "level", "safety_level": "x"}),
        ("reason", {"what": "level", "safety_level": "safe", "reason": "x" * 1001}),
        ("description_override", {"what": "description", "description_override": "x" * 10_001}),
        ("description_override", {"what": "description", "description_override": "\x00"}),
        ("categories", {"what": "categories", "categories": "x" * 65}),
        ("categories", {"what": "categories", "categories": ",".join(map(str, range(21)))}),
        ("categories", {"what": "categories", "categories": "a\u202eb"}),
        ("categories", {"what": "categories", "categories": "a\nb"}),
        ("categories", {"what": "categories", "categories": "a\u2028b"}),
        ("enabled", {"what": "enabled", "enabled": "perhaps"}),
        ("max_hours", {"what": "grantable", "max_hours": "0", "max_uses": "1"}),
        ("held", {"what": "version", "held": "0" * 64, "reason": "r"}),
        (weight, {"what": "implementations", weight: "-1"}),
        ("__all__", {"what": "implementations", "weight-999999": "1"}),
    ]
    pages = Pages(admin)
    pages.open(PAGE)

    def check(field: str, sent: dict[str, str]) -> None:
        pages.send(CHANGE, sent, 422)
        form = pages.context["refused"]
        assert [*form.errors] == [field]
        assert ('id="problem"' in pages.html) == (field in ("__all__", "enabled", "held"))

    assert faults(check, cases) == {}
    assert tool().updated_at == before


@pytest.mark.parametrize("fields", [{}, {"what": "nothing"}])
def test_unknown_form_is_a_bad_request(admin, fields):
    pages = Pages(admin)
    pages.open(PAGE)
    pages.send(CHANGE, fields, 400)


def test_refused_change_keeps_the_input(admin):
    pages = Pages(admin)
    change(pages, 422, what="categories", categories="beta, " + "x" * 65)
    assert f'value="beta, {"x" * 65}"' in pages.html and "set-categories-categories_error" in pages.html


@pytest.mark.parametrize("who", ["rosa", "ada", "vera"])
def test_others_cannot_change_tools(who, request):
    pages = Pages(request.getfixturevalue(who))
    pages.open(PAGE)
    assert 'id="settings"' not in pages.html and 'id="switch"' not in pages.html
    assert "weight-" not in pages.html
    pages.send(CHANGE, {"what": "enabled", "enabled": "no"}, 403)
    assert tool().enabled


def test_a_form_needs_its_token_and_a_tool(admin):
    pages = Pages(admin)
    pages.open(CHANGE, 405)
    pages.open(PAGE)
    pages.send("/tools/nothing/change/", {"what": "enabled", "enabled": "no"}, 404)
    assert pages.client.post(CHANGE, {"what": "enabled", "enabled": "no"}).status_code == 403
    assert tool().enabled
