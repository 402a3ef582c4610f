"""Administrators' overrides: effect, versions, persistence over syncs, audit entries."""

import json

import pytest

from approvals.models import AuditEntry
from catalog.definitions.binding import Binding
from catalog.definitions.tool import Tool
from catalog.inventory import snapshot
from catalog.inventory.sync import sync_registered_tools
from catalog.models import ApiToken, ToolVersion
from catalog.models import Tool as ToolRow
from catalog.testing import clean_registry
from catalog.tools import tool
from catalog.tools.registry import register_tool
from tests.corpus import faults
from tests.rest import Rest, wrong_paths

HIDDEN = "\u202e"


@pytest.fixture(autouse=True)
def registry(db):
    """One tool to be changed, and one that nobody else may describe."""
    with clean_registry():
        declare()
        sync_registered_tools()
        yield
    snapshot.drop_snapshot()


def declare(level="dangerous", description="Wipe a disk.", categories=("disks",)):
    """Register the tools as their code has them at this time."""

    @tool(name="wipe", description=description, safety_level=level, categories=categories)
    def wipe(disk: str) -> str:
        return disk

    @tool(name="fixed", accepts_overrides=False)
    def fixed() -> str:
        """Say what it is."""
        return "fixed"


@pytest.fixture
def rest(admin):
    """The client of an administrator."""
    return Rest(admin)


def entries():
    """Return what the audit log has of changes by people: action, and its details."""
    rows = AuditEntry.objects.filter(action__startswith="tool.").exclude(actor=None).order_by("seq")
    return [(row.action, json.loads(row.details)) for row in rows]


def called(name="wipe"):
    """Return the tool as it would be called now."""
    found = snapshot.callable_tool(name)
    assert found is not None
    return found


def test_a_lower_level_needs_a_reason_and_holds_at_once(rest):
    refused = rest.patch("tools/wipe/", {"safety_level": "cautious"})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["reason"])

    answer = rest.patch("tools/wipe/", {"safety_level": "cautious", "reason": "Only test disks here."})

    assert (answer.status_code, answer.json()["safety_level"], answer.json()["version"]) == (200, "cautious", 2)
    assert (answer.json()["declared_level"], answer.json()["level_override"]) == ("dangerous", "cautious")
    assert (called().tool.safety_level, called().version_number, called().drifted) == ("cautious", 2, False)
    [(action, details)] = entries()
    assert action == "tool.level_set"
    assert (details["before"], details["after"], details["reason"], details["version"]) == (
        "dangerous", "cautious", "Only test disks here.", 2,
    )  # fmt: skip
    assert details["fingerprint"] == called().fingerprint == called().tool.fingerprint


def test_a_higher_level_needs_no_reason_and_the_authors_own_is_not_set_over_itself(rest):
    assert rest.patch("tools/fixed/", {"safety_level": "dangerous"}).json()["safety_level"] == "dangerous"
    back = rest.patch("tools/fixed/", {"safety_level": "safe", "reason": "It says a word."}).json()

    assert (back["safety_level"], back["level_override"], back["version"]) == ("safe", None, 1)
    assert [action for action, _ in entries()] == ["tool.level_set", "tool.level_set"]


def test_another_description_is_what_models_read_and_the_authors_stays_visible(rest):
    answer = rest.patch("tools/wipe/", {"description_override": " Erase a whole disk. "}).json()

    assert (answer["description"], answer["declared_description"]) == ("Erase a whole disk.", "Wipe a disk.")
    assert rest.get("tools/wipe/schema/", provider="openai").json()["function"]["description"] == "Erase a whole disk."
    assert called().tool.description == "Erase a whole disk."
    assert (called().version_number, called().drifted) == (2, False)
    assert [(d["before"], d["after"]) for _, d in entries()] == [(None, "Erase a whole disk.")]
    assert rest.patch("tools/wipe/", {"description_override": None}).json()["version"] == 1


def test_a_description_stays_the_administrators_when_the_author_writes_another(rest):
    rest.patch("tools/wipe/", {"description_override": "Erase a whole disk."})
    declare(description="Wipe one.")

    sync_registered_tools()

    row = ToolRow.objects.get(name="wipe")
    assert (row.declared_description, called().tool.description) == ("Wipe one.", "Erase a whole disk.")
    assert called().version_number == 2


def test_a_tool_that_its_author_does_not_describe_has_no_description_again(rest):
    register_tool(Tool(name="wipe", description="", handler=len, bound=Binding({"type": "object"})))
    sync_registered_tools()
    rest.patch("tools/wipe/", {"description_override": "Erase a whole disk."})
    answer = rest.patch("tools/wipe/", {"description_override": None}).json()

    assert (answer["description"], called().tool.description, called().drifted) == ("", "", False)


@pytest.mark.parametrize(("said", "then"), [(None, "irreversible"), ("reversible", "reversible")])
def test_a_raised_tool_cannot_be_taken_back_unless_its_author_says_so(rest, said, then):
    takes_nothing = Binding({"type": "object"})
    register_tool(Tool(name="wipe", description="Wipe.", reversibility=said, handler=len, bound=takes_nothing))
    sync_registered_tools()
    rest.patch("tools/wipe/", {"safety_level": "dangerous"})

    assert (called().tool.reversibility, called().drifted) == (then, False)
    assert not sync_registered_tools()
    assert ToolVersion.objects.get(pk=called().version_pk).reversibility == then


def test_an_author_may_forbid_other_descriptions(rest):
    answer = rest.patch("tools/fixed/", {"description_override": "Anything."})

    assert (answer.status_code, wrong_paths(answer)) == (422, ["description_override"])


def test_categories_survive_the_next_sync_and_go_back_to_the_authors(rest):
    assert rest.patch("tools/wipe/", {"categories": ["danger", "admin"]}).json()["categories"] == ["admin", "danger"]
    declare(categories=("disks", "new"))
    sync_registered_tools()
    assert called().categories == frozenset({"admin", "danger"}) == frozenset(called().tool.categories)

    assert rest.patch("tools/wipe/", {"categories": None}).json()["categories"] == ["disks", "new"]
    assert called().version_number == 1
    assert [(d["before"], d["after"]) for _, d in entries()] == [
        (["disks"], ["admin", "danger"]), (["admin", "danger"], ["disks", "new"]),
    ]  # fmt: skip


def test_tool_is_disabled_and_enabled(rest):
    assert rest.patch("tools/wipe/", {"enabled": False}).json()["enabled"] is False
    assert not called().enabled
    assert rest.patch("tools/wipe/", {"enabled": True}).json()["enabled"] is True
    assert [action for action, _ in entries()] == ["tool.disabled", "tool.enabled"]


def test_weights_and_switches_of_implementations_are_set_and_make_no_version(rest):
    code = ToolRow.objects.get(name="wipe").implementations.get()

    body = {"implementations": [{"id": code.pk, "weight": 7, "enabled": False}]}
    answer = rest.patch("tools/wipe/", body).json()

    [shown] = answer["implementations"]
    assert (shown["weight"], shown["enabled"], shown["share"], answer["version"]) == (7, False, 0.0, 1)
    [(action, details)] = entries()
    assert (action, details["implementation"]) == ("tool.implementation_set", code.reference)
    assert (details["before"], details["after"]) == (
        {"weight": 100, "enabled": True}, {"weight": 7, "enabled": False},
    )  # fmt: skip


def test_what_is_already_so_leaves_no_trace(rest):
    body = {"enabled": True, "safety_level": "dangerous", "description_override": "Wipe a disk."}

    assert rest.patch("tools/wipe/", body).status_code == 200
    assert entries() == []


def test_invalid_change_is_422_at_its_field(rest):
    cases = [
        ({}, ""),
        ({"reason": "None."}, ""),
        ({"level": "safe"}, "level"),
        ({"safety_level": "harmless"}, "safety_level"),
        ({"safety_level": "safe", "reason": "  "}, "reason"),
        ({"enabled": "yes"}, "enabled"),
        ({"enabled": 1}, "enabled"),
        ({"categories": "disks"}, "categories"),
        ({"categories": ["a", "a"]}, "categories"),
        ({"categories": ["x" * 65]}, "categories.0"),
        ({"categories": [""]}, "categories.0"),
        ({"categories": ["disks", "x,y"]}, "categories.1"),
        ({"categories": ["a\nb"]}, "categories.0"),
        ({"categories": ["a\tb"]}, "categories.0"),
        ({"categories": ["a\u2028b"]}, "categories.0"),
        ({"categories": [str(n) for n in range(21)]}, "categories"),
        ({"description_override": "x" * 1025}, "description_override"),
        ({"description_override": f"Read {HIDDEN}this"}, "description_override"),
        ({"description_override": "bell \a"}, "description_override"),
        ({"description_override": 5}, "description_override"),
        ({"implementations": [{"id": 0}]}, "implementations.0.id"),
        ({"implementations": [{"weight": 5}]}, "implementations.0.id"),
        ({"implementations": [{"id": 1, "weight": 1001}]}, "implementations.0.weight"),
        ({"implementations": [{"id": 1, "weight": -1}]}, "implementations.0.weight"),
        ({"implementations": [{"id": 1, "weight": True}]}, "implementations.0.weight"),
        ({"implementations": {"id": 1}}, "implementations"),
        ({"implementations": [{"id": 1, "speed": 1}]}, "implementations.0.speed"),
    ]

    def check(body, path):
        answer = rest.patch("tools/wipe/", body)

        assert answer.status_code == 422
        assert wrong_paths(answer) == [path]
        assert entries() == []

    assert faults(check, cases) == {}


def test_all_of_a_change_is_made_or_nothing(rest):
    answer = rest.patch("tools/wipe/", {"enabled": False, "implementations": [{"id": 0}]})

    assert answer.status_code == 422
    assert ToolRow.objects.get(name="wipe").enabled


def test_only_administrators_change_tools_and_agents_never(rest, admin, ada, rosa):
    body = {"enabled": False}
    assert [Rest(person).patch("tools/wipe/", body).status_code for person in (ada, rosa)] == [403, 403]
    assert Rest(admin, "tools:read").patch("tools/wipe/", body).status_code == 403
    as_agent = Rest(admin, "tools:read", "catalog:write")
    ApiToken.objects.filter(pk=as_agent.token.pk).update(kind="agent")
    assert as_agent.patch("tools/wipe/", body).status_code == 403
    assert Rest(None).patch("tools/wipe/", body).status_code == 401
    assert rest.patch("tools/nothing/", body).status_code == 404
    assert ToolRow.objects.get(name="wipe").enabled


def test_a_tool_can_be_changed_whose_code_is_not_loaded_here(rest):
    with clean_registry():
        sync_registered_tools()
        answer = rest.patch("tools/wipe/", {"safety_level": "cautious", "reason": "Because."}).json()
    assert (answer["safety_level"], answer["registered"], answer["annotations"]["destructiveHint"]) == (
        "cautious", False, False,
    )  # fmt: skip

    declare()
    sync_registered_tools()
    assert (called().tool.safety_level, called().version_number, called().drifted) == ("cautious", 2, False)
