"""Messages that the next page shows briefly, with a button that undoes the action."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from django.contrib import messages
from django.http import HttpRequest

PREFIX = "button:"


@dataclass(frozen=True, slots=True)
class ToastButton:
    """A button beside a message: its label, and the address and fields that it submits by POST."""

    label: str
    action: str
    fields: Mapping[str, str] = field(default_factory=dict)


def announce(request: HttpRequest, text: str, button: ToastButton | None = None) -> None:
    messages.success(request, text, extra_tags=PREFIX + json.dumps(asdict(button)) if button else "")


def toast_button(extra_tags: str | None) -> ToastButton | None:
    if not extra_tags or not extra_tags.startswith(PREFIX):
        return None
    return ToastButton(**json.loads(extra_tags.removeprefix(PREFIX)))
