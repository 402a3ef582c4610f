"""Which language model is asked: what TOOLGATE_MODEL says, made when it is first needed.

The library that asks models costs seconds and memory to load, so nothing of it is imported before that.
"""

import os
import re
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.checks import Warning as Concern
from django.core.checks import register

from catalog.errors import ToolError

if TYPE_CHECKING:
    from pydantic_ai.models import Model

LIBRARY = "pydantic_ai"
CONFIGURATION_HINT = "Set TOOLGATE_MODEL to provider:model, such as openai:gpt-5 or anthropic:claude-sonnet-4-5"
KEYS = {"openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"), "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")}
"""Of the providers that are always there: one of these must be set."""
DIALECTS = {"chat", "responses", "decisions"}
_NAME = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|URL)\b")

_models: dict[tuple[str, str], "Model"] = {}
_build_lock = threading.Lock()


class NotConfigured(ToolError):
    """No model can be asked, however often it is tried: its message names the setting to fill."""

    kind = "no_model"

    def __init__(self, why: str = "No language model is configured.") -> None:
        super().__init__(f"{why} {CONFIGURATION_HINT}, and its key; docs/models.md says how.")


def is_configured() -> bool:
    """Say whether a model is named."""
    return bool(configured_model())


def configured_model() -> str:
    """Return the name of the model that is asked unless somebody says otherwise; empty for none."""
    return str(settings.TOOLGATE_MODEL)


def load_model(wanted: str = "") -> "Model":
    """Return the model of this name, else the one that TOOLGATE_MODEL names. Raises NotConfigured.

    The first time takes seconds: call it in a thread.
    """
    wanted = wanted or configured_model()
    if not wanted:
        raise NotConfigured
    key = wanted, os.environ.get("OPENAI_BASE_URL", "")
    with _build_lock:
        if key not in _models:
            _models[key] = _build_model(wanted)
        return _models[key]


def _build_model(wanted: str) -> "Model":
    from pydantic_ai.models import infer_model  # noqa: PLC0415 (see the module's docstring)

    try:
        return infer_model(_with_dialect(wanted))
    except ImportError:
        why = f"The provider of {wanted!r} needs a package that is not installed: install Toolgate's extra 'models'."
    except Exception as error:  # noqa: BLE001 - whatever a provider's own code raises, the setting is to be named
        missing = _NAME.search(str(error))
        why = (
            f"{wanted!r} needs {missing[0]} to be set." if missing else f"{wanted!r} names no model that can be asked."
        )
    raise NotConfigured(why)


def _with_dialect(wanted: str) -> str:
    """Return the name in the dialect that its server speaks: others than OpenAI's own know chat completions only."""
    provider, _, rest = wanted.partition(":")
    elsewhere = os.environ.get("OPENAI_BASE_URL", "")
    if provider == "openai" and elsewhere and "api.openai.com" not in elsewhere:
        return f"openai-chat:{rest}"
    return wanted


@register()
def check_model_setting(app_configs: object, **kwargs: object) -> list[Concern]:
    """Warn of what is wrong with TOOLGATE_MODEL, as far as it can be told without loading the library."""
    why = configuration_problem(configured_model()) if is_configured() else ""
    return [Concern(f"TOOLGATE_MODEL: {why} {CONFIGURATION_HINT}.", id="toolgate.W010")] if why else []


def configuration_problem(wanted: str) -> str:
    """Return why no model of this name can be asked, empty where nothing speaks against it."""
    provider, _, rest = wanted.partition(":")
    if not rest:
        return f"{wanted!r} does not say which provider's model it is."
    family = provider.rpartition("-")[0] if provider.rpartition("-")[2] in DIALECTS else provider
    if not provider.startswith("gateway/") and not _is_known_provider(family):
        return f"There is no provider {provider!r}."
    keys = KEYS.get(family, ())
    if keys and not any(os.environ.get(key) for key in keys):
        return f"{keys[0]} is not set."
    return ""


def _is_known_provider(provider: str) -> bool:
    """Say whether the library has a module for the provider; finding the library does not load it."""
    spec = find_spec(LIBRARY)
    places = spec.submodule_search_locations if spec else None
    module = provider.replace("-", "_") + ".py"
    return re.fullmatch(r"[a-z][a-z0-9_]*\.py", module) is not None and any(
        (Path(place) / "providers" / module).is_file() for place in places or ()
    )
