"""Names in the catalog for the tools of a source."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping

from catalog.definitions.rules import CATALOG_NAME
from catalog.tools.registry import is_reserved

MAX_NAME = 64


def catalog_names(
    source: str, upstream_names: Collection[str], *, kept: Mapping[str, str], taken: Collection[str]
) -> dict[str, str]:
    """Return a catalog name for each upstream name.

    Names in `kept` do not change. A new tool gets its upstream name if that is valid and free, otherwise
    `source__name`, where `_` replaces invalid characters. If that is too long or taken too, it is cut to 64 characters
    and ends in a hash.
    """
    names = {upstream: kept[upstream] for upstream in upstream_names if upstream in kept}
    used = {*taken, *names.values()}
    for upstream in upstream_names:
        if upstream not in names:
            names[upstream] = next(name for name in _name_choices(source, upstream) if name not in used)
            used.add(names[upstream])
    return names


def _name_choices(source: str, upstream: str) -> Iterator[str]:
    if CATALOG_NAME.fullmatch(upstream) and not is_reserved(upstream):
        yield upstream
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", upstream)
    prefixed = f"{source}__{plain}"
    if len(prefixed) <= MAX_NAME:
        yield prefixed
    attempt = 0
    while True:
        mark = hashlib.sha256(f"{source}\0{upstream}\0{attempt}".encode()).hexdigest()[:8]
        yield f"{prefixed[: MAX_NAME - 9]}_{mark}"
        attempt += 1
