"""Static files with content-dependent URLs."""

import re
from pathlib import Path
from urllib.parse import urljoin

from django.conf import settings
from django.templatetags.static import static
from django.test import Client

from config.serving.static_files import folder_digest

FOREVER = "max-age=31536000, public, immutable"
ADDRESS = re.compile(r'(?:src|href)="(/static/[^"]+)"')


def kept(address):
    """Return the status of what is there, and how long browsers keep it; read to its end, which closes the file."""
    response = Client().get(address)
    b"".join(response)
    return response.status_code, response.get("Cache-Control")


def test_pages_lead_to_files_that_browsers_keep_for_a_year(db):
    addresses = ADDRESS.findall(Client().get("/sign-in/").content.decode())
    assert len(addresses) > 3
    assert {address: kept(address) for address in addresses} == dict.fromkeys(addresses, (200, FOREVER))


def test_modules_lead_to_modules_of_the_same_digest():
    root = Path(settings.BASE_DIR, "static")
    lead = [
        urljoin(static(path.relative_to(root).as_posix()), module)
        for path in [root / "app.js", *root.glob("js/*.js")]
        for module in re.findall(r'(?:import|from) "([^"]+)"', path.read_text(encoding="utf-8"))
    ]
    assert lead
    assert {address: kept(address) for address in lead} == dict.fromkeys(lead, (200, FOREVER))


def test_the_stylesheet_leads_to_the_typefaces():
    sheet = Path(settings.BASE_DIR, "static", "css", "base.css").read_text(encoding="utf-8")
    lead = [urljoin(static("css/base.css"), font) for font in re.findall(r'url\("([^"]+)"\)', sheet)]
    assert static("fonts/Geist[wght].ttf") in lead
    assert {address: kept(address) for address in lead} == dict.fromkeys(lead, (200, FOREVER))


def test_the_digest_follows_names_and_content(tmp_path):
    def digest(name, content):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        found = folder_digest(tmp_path)
        path.unlink()
        return found

    assert digest("a.css", "x") == digest("a.css", "x")
    assert len({digest("a.css", "x"), digest("a.css", "y"), digest("b.css", "x")}) == 3


def test_files_of_another_version_are_asked_for_again():
    address = static("app.js")
    other = address.replace(settings.STATIC_DIGEST, "0" * len(settings.STATIC_DIGEST))
    assert kept(other) == (200, "no-cache")
    assert kept(other.replace("app.js", "nothing.js"))[0] == 404
