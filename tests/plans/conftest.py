"""Models that tests script: one in this process, one behind HTTP, and one in place of agents' tool; and a gate."""

import json
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from catalog.context import Deadline
from catalog.dispatch.runner import await_result
from catalog.tools import registry
from plans.agents.tool_calls import TURN_TOOL
from plans.llm import provider
from tests.catalogs import fill_catalog
from tests.plans.agents.scripted import SCRIPT, Script, agent_turn
from tests.plans.model_server import MODEL, ModelServer, model_server


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event for which hanging handlers wait; it is set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


Said = str | dict[str, Any] | Exception


@pytest.fixture
def configured(settings: Any, monkeypatch: pytest.MonkeyPatch, catalog: None) -> Iterator[None]:
    """A catalog with the planner's own tools, as an installation with a model has it; there is no such model."""
    settings.TOOLGATE_MODEL = f"openai:{MODEL}"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    monkeypatch.setattr(provider, "_models", {})
    before = set(registry._TOOLS)
    registry.initialize_tools()
    fill_catalog()
    yield
    for name in set(registry._TOOLS) - before:
        registry._TOOLS.pop(name)


@pytest.fixture
def server(request: pytest.FixtureRequest, configured: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A local server that speaks OpenAI's language, and is the configured model."""
    with model_server() as scripted:
        monkeypatch.setenv("OPENAI_BASE_URL", scripted.url)
        yield scripted
        if "executor" in request.fixturenames:  # what it began after the test's last look could open one more
            request.getfixturevalue("executor").stop(seconds=10)
        for made in provider._models.values():  # their connections would outlive the server
            on_the_loop(cast("Any", made).client.close())


def on_the_loop(work: Coroutine[Any, Any, Any], seconds: float = 60.0) -> Any:
    """Do something on the loop on which async tools run."""
    return await_result(work, Deadline.after(seconds))


class Scripted:
    """A model in this process: what it is to answer, and what it was asked."""

    def __init__(self) -> None:
        self.script: list[Said] = []
        self.asked: list[list[ModelMessage]] = []

    def says(self, *script: Said) -> None:
        """Answer this next, one after the other: a text, an object as JSON, or an error."""
        self.script += script

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Take the next answer."""
        self.asked.append(messages)
        line = self.script.pop(0)
        if isinstance(line, Exception):
            raise line
        return ModelResponse(parts=[TextPart(line if isinstance(line, str) else json.dumps(line))])

    def read(self, index: int = -1) -> str:
        """Return all that one request told the model, instructions and messages."""
        sent = [str(getattr(part, "content", "")) for each in self.asked[index] for part in each.parts]
        return "\n".join([str(getattr(self.asked[index][-1], "instructions", "")), *sent])


@pytest.fixture
def scripted(configured: None, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """A model in this process that is the configured one."""
    model = Scripted()
    made = FunctionModel(model.answer, model_name=MODEL)
    monkeypatch.setattr(provider, "load_model", lambda name="": made)
    return model


@pytest.fixture
def script(stage: Any) -> Iterator[Script]:
    """The scripted answers of agents' models, with the tools of `tests.tools_for_tests`."""
    from_above = registry._modules_above.pop("plans.agents.turn", None)
    shipped = registry._TOOLS.pop(TURN_TOOL, None)
    registry.register_tool(agent_turn)
    fill_catalog()
    yield SCRIPT
    SCRIPT.said.clear()
    SCRIPT.read.clear()
    registry._TOOLS.pop(TURN_TOOL)
    if from_above is not None:
        registry.register_module("plans.agents.turn", from_above)
    if shipped is not None:
        registry.register_tool(shipped)
