"""Static files under a digest of them all (`/static/<digest>/app.js`), which browsers may cache for a year.

URLs contain the digest before the path, so that relative imports and URLs inside the files work unchanged.
"""

import re
from hashlib import sha256
from importlib.metadata import distribution, version
from pathlib import Path
from typing import cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]

DIGEST_LENGTH = 12
FONT_PACKAGES = ("fontpkg-geist", "fontpkg-geist-mono")
PACKAGES = ("django", "django-htmx", "djangorestframework", "drf-spectacular-sidecar", *FONT_PACKAGES)
"""Packages whose static files are served too: their content changes with their version."""
OTHER_DIGEST_PATTERN = re.compile(rf"/static/[0-9a-f]{{{DIGEST_LENGTH}}}/")


def folder_digest(folder: Path) -> str:
    digest = sha256(" ".join(version(package) for package in PACKAGES).encode())
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:DIGEST_LENGTH]


def font_folders() -> list[Path]:
    """Return the folders of the packaged fonts. The packages are not imported."""
    return [Path(str(distribution(name).locate_file(f"{name.replace('-', '_')}/files"))) for name in FONT_PACKAGES]


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc] # it has no types
    """Serves static files: immutable under the current digest, to be revalidated under any other digest.

    While processes of two versions run in parallel, a page of one may request files from a process of the other.
    """

    FOREVER = 365 * 24 * 3600

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        path, other = request.path_info, OTHER_DIGEST_PATTERN.match(request.path_info)
        if other is None or path.startswith(self.static_prefix):
            return cast("HttpResponseBase", super().__call__(request))
        file = self.files.get(self.static_prefix + path[other.end() :])
        response: HttpResponseBase = self.get_response(request) if file is None else self.serve(file, request)
        if file is not None:
            response["Cache-Control"] = "no-cache"
        return response
