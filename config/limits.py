"""Reading how many calls of each tool may run at once."""

import re

from django.core.exceptions import ImproperlyConfigured

EVERY_TOOL = "*"
LIMIT = re.compile(r"(?:([A-Za-z0-9_-]{1,64})=)?([0-9]{1,5})")


def read_tool_limits(text: str) -> dict[str, int]:
    """Return tool → limit out of "4,send_mail=1": a bare number is for every other tool, kept under "*"; 0 is none.

    Raises ImproperlyConfigured.
    """
    limits: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = LIMIT.fullmatch(part)
        name = (found[1] or EVERY_TOOL) if found else ""
        if found is None or name in limits:
            raise ImproperlyConfigured(
                "TOOLGATE_MAX_RUNNING_PER_TOOL must be a number, tool=number pairs, or both, each once: 4,send_mail=1."
            )
        limits[name] = int(found[2])
    return limits if any(limits.values()) else {}
