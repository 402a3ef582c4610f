"""The configured model, problems of the setting, and lazy loading of the library."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.core.checks import run_checks

from plans.llm import provider
from plans.llm.provider import NotConfigured, configuration_problem, load_model

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def unmade(monkeypatch):
    """Start without created models and without keys in the environment."""
    monkeypatch.setattr(provider, "_models", {})
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "environment", "kind"),
    [
        ("openai:gpt-5", {"OPENAI_API_KEY": "k"}, "OpenAIResponsesModel"),
        ("openai-chat:gpt-5", {"OPENAI_API_KEY": "k"}, "OpenAIChatModel"),
        ("openai:local", {"OPENAI_BASE_URL": "http://127.0.0.1:1234/v1"}, "OpenAIChatModel"),
        ("openai-responses:local", {"OPENAI_BASE_URL": "http://127.0.0.1:1234/v1"}, "OpenAIResponsesModel"),
        ("anthropic:claude-sonnet-4-5", {"ANTHROPIC_API_KEY": "k"}, "AnthropicModel"),
    ],
)
def test_names_become_models(monkeypatch, name, environment, kind):
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    assert type(load_model(name)).__name__ == kind
    assert load_model(name) is load_model(name)
    assert configuration_problem(name) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "No language model is configured"),
        ("gpt-5", "gpt-5"),
        ("nobody:gpt-5", "nobody"),
        ("openai:gpt-5", "needs OPENAI_API_KEY to be set"),
        ("anthropic:claude-sonnet-4-5", "needs ANTHROPIC_API_KEY to be set"),
        ("mistral:mistral-large-latest", "extra 'models'"),
    ],
)
def test_unusable_model_names_the_setting(settings, name, words):
    settings.TOOLGATE_MODEL = name
    with pytest.raises(NotConfigured, match=words) as caught:
        load_model()
    assert "TOOLGATE_MODEL" in caught.value.message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-5", "gpt-5"),
        ("nobody:gpt-5", "nobody"),
        ("../x:gpt-5", "../x"),
        ("openai:gpt-5", "OPENAI_API_KEY is not set"),
        ("anthropic:claude", "ANTHROPIC_API_KEY is not set"),
    ],
)
def test_system_check_warns_about_the_setting(settings, name, words):
    settings.TOOLGATE_MODEL = name
    found = [each for each in run_checks() if each.id == "toolgate.W010"]
    assert [words in each.msg for each in found] == [True]
    assert configuration_problem("mistral:mistral-large-latest") == ""


def test_no_warning_without_a_model(settings):
    settings.TOOLGATE_MODEL = ""
    assert [each for each in run_checks() if each.id == "toolgate.W010"] == []


@pytest.mark.slow
def test_a_process_starts_without_the_library():
    """With a model configured, its tools registered and the API's views loaded."""
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings';"
        "os.environ['TOOLGATE_MODEL'] = 'openai:gpt-5'; django.setup();"
        "from catalog.tools.registry import initialize_tools, get_tool; initialize_tools(); import config.urls;"
        "assert get_tool('draft_plan');"
        "print([name for name in ('pydantic_ai', 'openai', 'anthropic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().splitlines()[-1] == "[]", done.stderr
