"""Pictures of every page and state that the layout tests walk through, and of the story of the first team.

`make screenshots` sets TOOLGATE_TEST_SCREENSHOTS: the walks then take pictures instead of asking for rules. It puts
them on the contact sheet, and some in documents.
"""

import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from itertools import count, product
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page

FOLDER = os.environ.get("TOOLGATE_TEST_SCREENSHOTS", "")
WIDTHS = {390: 844, 1440: 900}
"""Height of the window by its width; a longer page is pictured up to MAX_HEIGHT."""
MAX_HEIGHT = 5000
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
IDS = re.compile(r"\b(apr|call|gr|plan|pol|ses)_[\w-]{8,}")
PICTURE = re.compile(r"(?P<name>.+)-(?P<width>\d+)-(?P<scheme>light|dark)\.png")
IN_DOCUMENTS = {
    "approvals-light.png": "pages_of_the_demo/approvals-item-apr-1440-light.png",
    "approvals-dark.png": "pages_of_the_demo/approvals-item-apr-1440-dark.png",
    "approvals-phone.png": "pages_of_the_demo/approvals-item-apr-390-light.png",
    "plan-light.png": "pages_of_the_demo/plans-plan-1440-light.png",
    **{
        f"team-{name}{suffix}.png": f"first_team_approves_its_first_call/{name}-{width}-light.png"
        for name in ("first-steps", "second-factor", "consent", "approval")
        for suffix, width in (("", 1440), ("-phone", 390))
    },
}
"""The pictures that README and guides show, by name in `docs/screenshots/`; each is one of the contact sheet."""
STYLE = """
  body { font: 14px/1.4 system-ui, sans-serif; margin: 24px; color-scheme: light dark; }
  .row { display: flex; gap: 12px; align-items: start; overflow-x: auto; padding-bottom: 16px; }
  img { border: 1px solid #8886; max-height: 480px; object-fit: cover; object-position: top; }
"""


def take_pictures(page: Page, name: str, *, whole: bool) -> None:
    """Picture the open page at each width and in each colour scheme, in the folder of the test that is running.

    Unless `whole`, a picture shows what a window of that size shows.
    """
    test = re.search(r"::test_(\w+)", os.environ["PYTEST_CURRENT_TEST"])
    folder = Path(FOLDER, test[1] if test else "other")
    folder.mkdir(parents=True, exist_ok=True)
    slug = re.sub(r"[^a-z0-9]+", "-", IDS.sub(r"\1", name).lower()).strip("-")[:100] or "home"
    taken = {found["name"] for path in folder.glob("*.png") if (found := PICTURE.fullmatch(path.name))}
    names = (slug if number == 1 else f"{slug}-{number}" for number in count(1))
    slug = next(each for each in names if each not in taken)
    for scheme, (width, height) in product(SCHEMES, WIDTHS.items()):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": height})
        if whole:
            # A window as high as the page, so that bars at its bottom stay at the bottom.
            length = min(MAX_HEIGHT, int(page.evaluate("document.documentElement.scrollHeight")))
            page.set_viewport_size({"width": width, "height": max(height, length)})
        page.screenshot(path=folder / f"{slug}-{width}-{scheme}.png", animations="disabled")


def contact_sheet(folder: Path) -> Iterator[str]:
    """Yield the lines of a page with all pictures of a folder, by test and page."""
    yield '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Toolgate pages</title>'
    yield f"<style>{STYLE}</style>"
    by_page: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*/*.png")):
        if found := PICTURE.fullmatch(path.name):
            by_page[path.parent.name, found["name"]].append(path)
    for (test, name), paths in by_page.items():
        yield f"<h2>{escape(name)} <small>{escape(test.replace('_', ' '))}</small></h2>\n<div class='row'>"
        for path in paths:
            source = escape(path.relative_to(folder).as_posix())
            yield f'<a href="{source}"><img src="{source}" alt="{escape(path.stem)}" loading="lazy"></a>'
        yield "</div>"


def renew_documents(folder: Path, target: Path) -> None:
    """Copy the pictures in documents from the contact sheet's folder. Raises FileNotFoundError if one was not taken."""
    for name, picture in IN_DOCUMENTS.items():
        shutil.copyfile(folder / picture, target / name)


if __name__ == "__main__":
    folder, *documents = map(Path, sys.argv[1:])
    Path(folder, "index.html").write_text("\n".join(contact_sheet(folder)), encoding="utf-8")
    for target in documents:
        renew_documents(folder, target)
