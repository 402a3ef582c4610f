"""Imported by a process that serves: registers the tools that people try."""

from catalog.tools.registry import register_tool
from tests.tools_to_try import TOOLS

for _each in TOOLS:
    register_tool(_each)
