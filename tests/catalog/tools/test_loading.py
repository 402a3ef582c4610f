"""Tools from installed packages and modules, and modules that fail to load."""

import logging
import sys
from io import StringIO

import pytest
from django.core.management import call_command

from catalog.inventory import snapshot
from catalog.models import Source, Tool
from catalog.testing import clean_registry
from catalog.tools.registry import broken_modules, get_tool, initialize_tools

NOTE = '''
from catalog.tools import tool


@tool
def {name}(text: str) -> str:
    """Say it back."""
    return text
'''


@pytest.fixture(autouse=True)
def registry():
    """Nothing is registered but what the test finds."""
    with clean_registry():
        yield
    snapshot.drop_snapshot()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write modules where Python finds them; they are forgotten afterwards, and no others."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    yield write
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def package(write, name, module, value=None):
    """Write an installed package: its module, and the metadata that names it as a source of tools."""
    write(f"{name}.py", module)
    write(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    write(f"{name}-1.0.dist-info/entry_points.txt", f"[toolgate.tools]\nmine = {value or name}\n")


def test_the_tools_of_an_installed_package_are_found_by_its_entry_point(write):
    package(write, "desk_tools", NOTE.format(name="desk_note"))

    initialize_tools()

    assert get_tool("desk_note") is not None
    assert broken_modules() == {}


def test_an_entry_point_may_name_the_tool_itself(write):
    package(write, "shelf_tools", NOTE.format(name="shelf_note"), "shelf_tools:shelf_note")

    initialize_tools()

    assert get_tool("shelf_note") is not None


def test_a_package_that_cannot_be_imported_loses_its_own_tools_only(write, settings):
    package(write, "broken_tools", NOTE.format(name="half") + "\nimport no_such_library\n")
    write("whole_tools.py", NOTE.format(name="whole"))
    settings.TOOLGATE_TOOLS = ["whole_tools"]

    initialize_tools()

    assert get_tool("whole") is not None
    assert get_tool("read_file") is not None
    assert get_tool("half") is None
    assert broken_modules() == {
        "broken_tools": "ModuleNotFoundError: No module named 'no_such_library' (line 10 of broken_tools)"
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("raise RuntimeError('password=hunter2')", "RuntimeError (line 1 of odd_tools)"),
        ("open('/no/such/place')", "FileNotFoundError (line 1 of odd_tools)"),
        ("import sys; sys.exit('bye')", "SystemExit (line 1 of odd_tools)"),
        ("def half(:", "SyntaxError: invalid syntax (odd_tools.py, line 1)"),
        ("{}['token-123']", "KeyError (line 1 of odd_tools)"),
        ("never_defined", "NameError: name 'never_defined' is not defined (line 1 of odd_tools)"),
        (
            "from catalog.tools import tool\n@tool(safety_level='harmless')\ndef x() -> int:\n    '''X.'''",
            "ToolDefinitionError: Tool x: The safety level must be one of safe, cautious, dangerous, not 'harmless'."
            " (line 2 of odd_tools)",
        ),
        (
            f"from catalog.tools import tool\n@tool(name='{'n' * 65}')\ndef x() -> int:\n    '''X.'''",
            f"ToolDefinitionError: The tool name '{'n' * 65}' must be 1 to 64 letters, digits, '_' or '-'."
            " (line 2 of odd_tools)",
        ),
        (
            "from catalog.tools import tool\na, b = [tool(name='x', description='X.')(lambda: 1) for _ in range(2)]",
            "ToolDefinitionError: The tool 'x' appears twice in one set of tools. Rename one.",
        ),
    ],
)
def test_import_error_is_reported_without_private_data(write, settings, caplog, line, why):
    write("odd_tools.py", line)
    settings.TOOLGATE_TOOLS = ["odd_tools"]

    with caplog.at_level(logging.ERROR, logger="toolgate.tools"):
        initialize_tools()

    assert broken_modules() == {"odd_tools": why}
    kind = why.partition(" ")[0].rstrip(":")
    assert caplog.messages == [f"tools_broken module=odd_tools error={kind}"]


def test_a_tool_takes_the_place_of_its_namesake_and_the_log_says_of_which(write, settings, caplog):
    write("own_tools.py", NOTE.format(name="read_file"))
    settings.TOOLGATE_TOOLS = ["own_tools"]

    with caplog.at_level(logging.WARNING, logger="toolgate.tools"):
        initialize_tools()

    replaced = get_tool("read_file")
    assert replaced is not None and replaced.reference == "own_tools:read_file"
    was = "catalog.toolsets.workspace:read_file"
    assert caplog.messages == [f"tool_replaced name=read_file module=own_tools was={was}"]


def test_a_module_that_does_not_exist_is_broken_and_stops_nothing(settings):
    settings.TOOLGATE_TOOLS = ["no_such_module"]

    initialize_tools()

    assert broken_modules() == {"no_such_module": "ModuleNotFoundError: No module named 'no_such_module'"}
    assert get_tool("read_file") is not None


def broken_sources():
    """Return the names of the sources that have an error."""
    return list(Source.objects.exclude(error="").values_list("name", flat=True))


def test_what_is_broken_is_kept_shown_and_mended(db, write, settings, client):
    write("late_tools.py", NOTE.format(name="late"))
    settings.TOOLGATE_TOOLS = ["late_tools"]
    call_command("sync_tools", stdout=StringIO())
    assert broken_sources() == []

    del sys.modules["late_tools"]
    write("late_tools.py", "import no_such_library_at_all\n# longer than before, so that it is compiled again\n")
    out, err = StringIO(), StringIO()
    with clean_registry():
        call_command("sync_tools", stdout=out, stderr=err)
    assert out.getvalue().splitlines() == ["removed late"]
    assert err.getvalue().startswith("broken late_tools: ModuleNotFoundError: No module named 'no_such_library_at_all'")
    assert broken_sources() == ["late_tools"]
    assert client.get("/readyz").status_code == 200

    write("late_tools.py", NOTE.format(name="late") + "# mended\n")
    call_command("sync_tools", stdout=StringIO())
    assert Source.objects.get(name="late_tools").error == ""
    assert Tool.objects.get(name="late").registered
