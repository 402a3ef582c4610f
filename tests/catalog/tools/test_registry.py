"""Contents of the registry: shipped tools, tools of settings, clean registries."""

import sys
from types import ModuleType

import pytest

from catalog.testing import clean_registry
from catalog.tools import (
    define_tool,
    get_all_tools,
    get_tool,
    get_tool_descriptions,
    initialize_tools,
    register_tool,
)
from catalog.tools.registry import broken_modules, nearest_names

SHIPPED = {
    *("list_files", "read_file", "search_files", "write_file", "delete_file"),
    *("describe_symbol", "apropos_search", "function_arglist", "eval_form"),
    *("sec_financial_data", "render_text"),
}


@pytest.fixture(autouse=True)
def registry():
    with clean_registry():
        yield


def test_initializing_registers_the_shipped_tools_and_again_changes_nothing():
    initialize_tools()
    first = get_all_tools()
    initialize_tools()

    assert set(first) >= SHIPPED
    assert get_all_tools() == first


def test_a_clean_registry_is_empty_and_gives_back_what_was_there():
    initialize_tools()
    before = get_all_tools()

    with clean_registry():
        assert get_all_tools() == {}

    assert get_all_tools() == before


def test_tools_of_a_module_named_in_the_settings_are_registered(settings, monkeypatch):
    module = ModuleType("extra_tools")
    module.extra = define_tool("extra", "Extra.", [], handler=lambda args: 1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "extra_tools", module)
    settings.TOOLGATE_TOOLS = ["extra_tools"]

    initialize_tools()

    assert get_tool("extra") is not None


@pytest.mark.parametrize("name", ["ask_user", "plan_on", "compose_reply", "draft_plan"])
def test_a_module_of_the_settings_takes_no_name_that_plans_give_a_meaning(settings, monkeypatch, name):
    module = ModuleType("taking_names")
    module.taken = define_tool(name, "Taken.", [], handler=lambda args: 1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "taking_names", module)
    settings.TOOLGATE_TOOLS = ["taking_names"]

    initialize_tools()

    assert "reserved" in broken_modules()["taking_names"]
    assert getattr(get_tool(name), "description", "") != "Taken."


def test_registering_replaces_and_returns():
    first = register_tool(define_tool("same", "One.", [], handler=lambda args: 1))
    second = register_tool(define_tool("same", "Two.", [], handler=lambda args: 2))

    assert first is not second and get_tool("same") is second


def test_descriptions_have_three_keys_in_the_order_of_registration():
    register_tool(define_tool("b", "B.", [], handler=lambda args: 1))
    register_tool(define_tool("a", "A.", [], handler=lambda args: 1))

    assert get_tool_descriptions() == [
        {"name": "b", "description": "B.", "requires_identifier": False},
        {"name": "a", "description": "A.", "requires_identifier": False},
    ]


def test_the_nearest_names_come_first():
    initialize_tools()

    assert nearest_names("red_file")[0] == "read_file"
    assert nearest_names("zzzzzz") == []
    assert "read_file" not in nearest_names("read_file")
