"""The records of `scripts/planted_faults.toml` follow the code: each fault can be planted, its tests exist."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.house.source import ROOT, write


def load_script() -> ModuleType:
    """Import the script by its path; `scripts` is no package."""
    spec = importlib.util.spec_from_file_location("planted_faults", ROOT / "scripts/planted_faults.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.mark.parametrize("fault", script.read_faults([], []), ids=lambda fault: str(fault.name))
def test_each_fault_can_be_planted(fault: Any) -> None:
    """Its old text occurs once, the code with the fault compiles, and its tests exist."""
    text, changed = script.planted_code(fault, ROOT)
    assert text != changed


@pytest.mark.parametrize(
    "change",
    [{"old": "a = 0"}, {"old": "="}, {"new": "a ="}, {"path": "none.py"}, {"tests": ["tests/none.py::test_a"]}],
)
def test_out_of_date_records_are_found(tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path, "a.py", "a = 1\nb = 1\n")
    write(tmp_path, "tests/test_a.py", "")
    record: dict[str, Any] = {"name": "n", "area": "x", "path": "a.py", "old": "a = 1", "new": "a = 2", "why": "w"}
    record["tests"] = ["tests/test_a.py::test_a"]
    assert script.planted_code(script.Fault(**record), tmp_path)[1] == "a = 2\nb = 1\n"
    with pytest.raises(script.OutOfDate):
        script.planted_code(script.Fault(**record | change), tmp_path)
