"""What error pages and error mails of Django say of a request and of the code's variables: nothing.

Both may hold arguments, results and secrets, with DEBUG on too. The stack says where it happened.
"""

from collections.abc import ItemsView
from types import FrameType
from typing import Any

from django.http import HttpRequest
from django.views.debug import SafeExceptionReporterFilter


class SaysNoValues(SafeExceptionReporterFilter):
    """Hides what was sent and what variables held; names stay."""

    def is_active(self, request: HttpRequest | None) -> bool:
        """Hide, whether DEBUG is on or off."""
        return True

    def get_post_parameters(self, request: HttpRequest | None) -> dict[str, Any]:
        """Return the names of the fields that were sent."""
        return dict.fromkeys(request.POST, self.cleansed_substitute) if request is not None else {}

    def get_traceback_frame_variables(self, request: HttpRequest | None, tb_frame: FrameType) -> ItemsView[str, Any]:
        """Return the names of the variables."""
        return dict.fromkeys(tb_frame.f_locals, self.cleansed_substitute).items()
