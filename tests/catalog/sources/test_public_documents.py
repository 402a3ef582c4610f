"""Documents of public APIs, cut down to paths, parameters and schemas; each names its source in `info.description`."""

import json
from collections import Counter
from pathlib import Path

import pytest

from catalog.inventory import snapshot
from catalog.inventory.imported_tools import TOOLS_AT_ONCE
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.models import Tool
from catalog.schemas import compile_schema
from catalog.sources.loading import judge_definition
from catalog.sources.openapi import list_operations
from catalog.sources.settings import UpstreamSettings
from tests.catalogs import imported_tool

DOCUMENTS = Path(__file__).parent / "documents"
OPERATIONS = {"github": (400, 0), "figma": (54, 0), "readme": (54, 4)}
"""Operations by document, and how many of them are imported without an optional body that is neither JSON nor form."""


def read(name):
    """Return the text of a document."""
    return (DOCUMENTS / f"{name}.json").read_text()


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_becomes_a_tool(name):
    listing = list_operations(name, read(name))
    settings = UpstreamSettings(pk=1, name=name, kind="openapi")
    problems = [problem for each in listing.definitions if (problem := judge_definition("tool", each, settings))]
    assert ((len(listing.definitions), len(listing.problems)), problems) == (OPERATIONS[name], [])
    assert all("multipart/form-data" in each for each in listing.problems)


def test_levels_of_github_follow_from_its_methods():
    paths = json.loads(read("github"))["paths"].values()
    methods = Counter(method for item in paths for method in item if method != "parameters")
    levels = Counter(each.safety_level for each in list_operations("github", read("github")).definitions)
    assert levels == {
        "safe": methods["get"],
        "cautious": methods["post"] + methods["put"] + methods["patch"],
        "dangerous": methods["delete"],
    }


@pytest.mark.parametrize("paths", [40, pytest.param(None, marks=pytest.mark.nightly)])
def test_large_document_is_imported_once(transactional_db, admin, paths):
    whole = json.loads(read("github"))
    text = json.dumps({**whole, "paths": dict(list(whole["paths"].items())[:paths])})
    count = len(list_operations("github", text).definitions)
    assert count > TOOLS_AT_ONCE
    source = create_source({"name": "github", "kind": "openapi", "document": text}, by=admin)
    changes = sync_source(source)
    assert (len(changes.added), changes.problems) == (count, [])
    assert not sync_source(source)
    names = set(Tool.objects.filter(source=source).values_list("name", flat=True))
    assert names <= snapshot.callable_tools().keys() and all(len(name) <= 64 for name in names)
    create = imported_tool("actions/create-hosted-runner-for-org", source)
    assert create.current_version is not None
    problems = compile_schema(create.current_version.input_schema).problems({"name": "r"})
    assert "org" in [problem.path for problem in problems]
