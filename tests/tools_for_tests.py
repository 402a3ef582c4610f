"""Tools whose handlers do what a test says, one of each kind that the engine treats differently.

They are made in a registry of their own: the `stage` fixture registers them where a test asks for them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from catalog.testing import clean_registry
from catalog.tools import Preview, ToolContext, tool

Act = Callable[[Any, ToolContext], Any]
SHORT_SECONDS = 1.0
"""Timeout of the `hasty` tools: on a busy machine a thread waits for a good part of that before it begins."""


@dataclass
class Stage:
    """Behaviour of the handlers, by tool name (they answer with their value), and which calls they saw."""

    acts: dict[str, Act] = field(default_factory=dict)
    previews: dict[str, Act] = field(default_factory=dict)
    played: list[tuple[str, Any, ToolContext]] = field(default_factory=list)

    def play(self, name: str, value: Any, context: ToolContext) -> Any:
        """Note the call and do what the test said."""
        self.played.append((name, value, context))
        act = self.acts.get(name)
        return value if act is None else act(value, context)

    def values(self, name: str) -> list[Any]:
        """Return the values that calls of this tool had, in the order they ran."""
        return [value for played, value, _ in self.played if played == name]

    def clear(self) -> None:
        """Forget everything."""
        self.acts.clear()
        self.previews.clear()
        self.played.clear()


STAGE = Stage()

with clean_registry():

    @tool
    def safe(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value."""
        return STAGE.play("safe", value, context)

    @tool(retry_safe=True)
    def patient(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value; may be tried again."""
        return STAGE.play("patient", value, context)

    @tool(output_key="kept")
    def keeping(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, to be kept."""
        return STAGE.play("keeping", value, context)

    @tool(timeout=SHORT_SECONDS)
    def hasty(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, soon."""
        return STAGE.play("hasty", value, context)

    @tool(timeout=SHORT_SECONDS, retry_safe=True)
    def hasty_patient(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, soon; may be tried again."""
        return STAGE.play("hasty_patient", value, context)

    @tool(timeout=SHORT_SECONDS, safety_level="cautious")
    async def hasty_async(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, soon, on the event loop."""
        returned = STAGE.play("hasty_async", value, context)
        return await returned if hasattr(returned, "__await__") else returned

    @tool
    async def safe_async(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, on the event loop."""
        returned = STAGE.play("safe_async", value, context)
        return await returned if hasattr(returned, "__await__") else returned

    @tool(safety_level="cautious")
    async def cautious_async(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, noted in the audit log, on the event loop."""
        returned = STAGE.play("cautious_async", value, context)
        return await returned if hasattr(returned, "__await__") else returned

    @tool(safety_level="cautious")
    def cautious(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, noted in the audit log."""
        return STAGE.play("cautious", value, context)

    @tool(safety_level="cautious", retry_safe=True)
    def cautious_patient(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, noted in the audit log; may be tried again."""
        return STAGE.play("cautious_patient", value, context)

    @tool(safety_level="dangerous", retry_safe=True, reversibility="restorable")
    def dangerous(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, once a person agrees."""
        return STAGE.play("dangerous", value, context)

    @dangerous.preview
    def _(value: Any = None, *, context: ToolContext) -> Preview:
        act = STAGE.previews.get("dangerous")
        shown = act(value, context) if act else None
        return shown if isinstance(shown, Preview) else Preview(f"Do {value}", "text", state_token="as it was")

    @tool(safety_level="dangerous", timeout=SHORT_SECONDS, reversibility="restorable")
    def dangerous_hasty(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, soon, once a person agrees."""
        return STAGE.play("dangerous_hasty", value, context)

    @tool(rate_limit_key="stage", rate_limit="2/min")
    def limited(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, twice a minute."""
        return STAGE.play("limited", value, context)

    @tool(safety_level="dangerous", rate_limit_key="stage-dangerous", rate_limit="1/h", reversibility="restorable")
    def limited_dangerous(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, once an hour and once a person agrees."""
        return STAGE.play("limited_dangerous", value, context)

    @limited_dangerous.preview
    def _(value: Any = None, *, context: ToolContext) -> Preview:
        act = STAGE.previews.get("limited_dangerous")
        return Preview(f"Do {value}", "text", state_token=act(value, context) if act else "as it was")

    @tool(returns_private_data=True)
    def private(value: Any = None, *, context: ToolContext) -> Any:
        """Answer with the value, which is somebody's own."""
        return STAGE.play("private", value, context)


TOOLS = (
    *(safe, patient, keeping, hasty, hasty_async, cautious, cautious_patient, dangerous, dangerous_hasty),
    hasty_patient,
    *(limited, limited_dangerous, private, safe_async, cautious_async),
)
