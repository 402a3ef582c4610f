"""Which language model is asked: what TOOLGATE_MODEL says, made when it is first needed.

The library that asks models costs seconds and memory to load, so nothing of it is imported before that.
"""

from typing import TYPE_CHECKING

from django.conf import settings

from catalog.errors import ToolgateError

if TYPE_CHECKING:
    from pydantic_ai.models import Model


class NotConfigured(ToolgateError):
    """No model can be asked: its message names the setting to fill."""

    kind = "no_model"


def is_configured() -> bool:
    """Say whether a model is named."""
    return bool(settings.TOOLGATE_MODEL)


def model() -> "Model":
    """Return the model that TOOLGATE_MODEL names. Raises NotConfigured."""
    raise NotImplementedError
