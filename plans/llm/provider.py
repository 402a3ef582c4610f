"""Language models by name, TOOLGATE_MODEL by default; each is created at its first use.

The client library takes seconds and much memory to load, so it is imported only then.
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
"""Environment variables of the built-in providers; at least one of a provider's variables must be set."""
DIALECTS = {"chat", "responses", "decisions"}
_NAME = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|URL)\b")

_models: dict[tuple[str, str], "Model"] = {}
_build_lock = threading.Lock()


class NotConfigured(ToolError):
    """No usable model is configured; the message names the setting to change. A retry will not help."""

    kind = "no_model"

    def __init__(self, why: str = "No language model is configured.") -> None:
        super().__init__(f"{why} {CONFIGURATION_HINT}, and set its key; see docs/models.md.")


def is_configured() -> bool:
    return bool(configured_model())


def configured_model() -> str:
    """Return the name of the default model; empty if none is configured."""
    return str(settings.TOOLGATE_MODEL)


def load_model(name: str = "") -> "Model":
    """Return a model by name, by default TOOLGATE_MODEL. Raises NotConfigured. The first call takes seconds."""
    name = name or configured_model()
    if not name:
        raise NotConfigured
    key = name, os.environ.get("OPENAI_BASE_URL", "")
    with _build_lock:
        if key not in _models:
            _models[key] = _build_model(name)
        return _models[key]


def _build_model(name: str) -> "Model":
    from pydantic_ai.models import infer_model  # noqa: PLC0415 (see the module's docstring)

    provider, _, rest = name.partition(":")
    elsewhere = os.environ.get("OPENAI_BASE_URL", "")
    # OpenAI-compatible servers other than OpenAI's know chat completions only.
    is_compatible = provider == "openai" and elsewhere and "api.openai.com" not in elsewhere
    try:
        return infer_model(f"openai-chat:{rest}" if is_compatible else name)
    except ImportError:
        why = f"The provider of {name!r} needs a package that is not installed: install Toolgate's extra 'models'."
    except Exception as error:  # noqa: BLE001 - providers raise arbitrary errors; the message must name the setting
        missing = _NAME.search(str(error))
        why = f"{name!r} needs {missing[0]} to be set." if missing else f"{name!r} is not a usable model."
    raise NotConfigured(why)


@register()
def check_model_setting(app_configs: object, **kwargs: object) -> list[Concern]:
    """Warn about problems of TOOLGATE_MODEL that can be found without loading the library."""
    why = configuration_problem(configured_model()) if is_configured() else ""
    return [Concern(f"TOOLGATE_MODEL: {why} {CONFIGURATION_HINT}.", id="toolgate.W010")] if why else []


def configuration_problem(name: str) -> str:
    """Return why no model with this name can be used; empty if no problem is found."""
    provider, _, rest = name.partition(":")
    if not rest:
        return f"{name!r} does not name a provider."
    family = provider.rpartition("-")[0] if provider.rpartition("-")[2] in DIALECTS else provider
    if not provider.startswith("gateway/") and not _is_known_provider(family):
        return f"Unknown provider {provider!r}."
    keys = KEYS.get(family, ())
    if keys and not any(os.environ.get(key) for key in keys):
        return f"{keys[0]} is not set."
    return ""


def _is_known_provider(provider: str) -> bool:
    """Return whether the library has a module for the provider, without loading the library."""
    spec = find_spec(LIBRARY)
    places = spec.submodule_search_locations if spec else None
    module = provider.replace("-", "_") + ".py"
    return re.fullmatch(r"[a-z][a-z0-9_]*\.py", module) is not None and any(
        (Path(place) / "providers" / module).is_file() for place in places or ()
    )
