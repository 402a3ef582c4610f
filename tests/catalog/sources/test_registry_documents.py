"""Whole OpenAPI documents of packages on npm, as their authors publish them: every operation is accounted for."""

import hashlib
import resource
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.models import Tool
from catalog.sources.loading import judge_definition
from catalog.sources.openapi import ImportSettings, list_operations
from catalog.sources.openapi_document import read_document
from catalog.sources.settings import UpstreamSettings

pytestmark = pytest.mark.nightly

PACKAGES = {
    "@octokit/openapi@23.0.2": "71a18407dd5e8464f4e0525daf03deabbe65abd9287d6adc7b5d98f516cd0d0c",
    "@directus/specs@15.2.0": "387f6679cd96795bb9efb661a7e32c369902636d1115fec7ed3e7fcc84139150",
    "@blockfrost/openapi@0.1.93": "df98afcbc73a8a74acd5be2a3bc7e8daa35384cd845ad576c5b215e84b99c155",
    "rclone-openapi@1.75.0": "c71d0d4d78422650155659c62bfc96c6d42b70e2cbbf9bdda6a4cc8e3755935d",
    "shipengine-openapi@1.4.0": "5005f528c0bbf2b4d24b07678852e0a48738b59051c7113cd7511a2d89c82f60",
    "@ideal-postcodes/openapi@4.21.0": "c5a66163494111a78249433d1f1dacb50da0fcdaa33828b5115f81d52e5372d5",
}
"""SHA-256 of the packages."""
GITHUB = ("@octokit/openapi@23.0.2", "generated/api.github.com.json")
ENTERPRISE = ("@octokit/openapi@23.0.2", "generated/ghec.json")
DIRECTUS = ("@directus/specs@15.2.0", "dist/openapi.json")
BLOCKFROST = ("@blockfrost/openapi@0.1.93", "openapi.yaml")
RCLONE = ("rclone-openapi@1.75.0", "openapi.json")
RCLONE_YAML = ("rclone-openapi@1.75.0", "openapi.yaml")
SHIPENGINE = ("shipengine-openapi@1.4.0", "openapi.json")
IDEAL = ("@ideal-postcodes/openapi@4.21.0", "dist/openapi.json")
IDEAL_YAML = ("@ideal-postcodes/openapi@4.21.0", "dist/openapi.yaml")
MAX_MEMORY_KIB = 1024 * 1024
METHODS = frozenset({"get", "put", "post", "delete", "patch", "head", "options", "trace"})


@pytest.fixture(scope="module")
def text_of(request):
    """Return a function that returns a file of a package, which is kept in pytest's cache."""
    if shutil.which("npm") is None:
        pytest.skip("There is no npm.")
    folder = Path(request.config.cache.mkdir("openapi-packages"))

    def text(package, member):
        name, _, version = package.lstrip("@").replace("/", "-").rpartition("@")
        archive = folder / f"{name}-{version}.tgz"
        if not archive.exists():
            command = ["npm", "pack", package, "--silent", "--pack-destination", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"npm cannot fetch {package}: {done.stderr.strip()[-300:] or done.returncode}")
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == PACKAGES[package]
        with tarfile.open(archive) as files:
            file = files.extractfile(f"package/{member}")
            assert file is not None
            return file.read().decode()

    return text


@pytest.mark.parametrize(
    ("document", "base_url", "tools", "left_out"),
    [
        (GITHUB, "", 1222, 1),
        (ENTERPRISE, "https://api.example.ghe.com", 1470, 1),
        (DIRECTUS, "https://directus.example.com", 136, 0),
        (BLOCKFROST, "", 121, 8),
        (RCLONE, "", 101, 0),
        (SHIPENGINE, "", 76, 0),
        (IDEAL, "", 31, 0),
    ],
)
def test_every_operation_is_imported_or_left_out_with_a_reason(text_of, document, base_url, tools, left_out):
    text = text_of(*document)
    listing = list_operations("api", text, ImportSettings(base_url=base_url))
    settings = UpstreamSettings(pk=1, name="api", kind="openapi")
    refused = [problem for each in listing.definitions if (problem := judge_definition("tool", each, settings))]
    missing = [each for each in listing.problems if " cannot be imported: " in each]
    paths = read_document(text)["paths"]
    count = sum(method in METHODS for item in paths.values() for method in item)
    assert (len(listing.definitions), len(missing), refused) == (tools, left_out, [])
    assert tools + left_out == count
    assert all(each.endswith(".") and "Error" not in each and "written as" not in each for each in listing.problems)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MAX_MEMORY_KIB


@pytest.mark.parametrize(("one", "other"), [(RCLONE, RCLONE_YAML), (IDEAL, IDEAL_YAML)])
def test_same_document_in_json_and_yaml_gives_the_same_tools(text_of, one, other):
    assert list_operations("api", text_of(*one)) == list_operations("api", text_of(*other))


def test_chosen_operations_of_a_large_document_become_tools(text_of, transactional_db, admin):
    values = {"name": "github", "kind": "openapi", "document": text_of(*GITHUB), "only": {"tags": ["issues"]}}
    source = create_source({**values, "only": {**values["only"], "paths": ["/user/emails"]}}, by=admin)
    changes = sync_source(source)
    listing = list_operations("github", source.document, ImportSettings(only=source.only))
    assert len(changes.added) == len(listing.definitions) > 50 and changes.problems == []
    assert not sync_source(source)
    assert Tool.objects.filter(source=source, registered=True).count() == len(changes.added)
    create = next(each for each in listing.definitions if each.upstream == "issues/create")
    assert create.http is not None and create.http["url"] == "https://api.github.com/repos/{owner}/{repo}/issues"
