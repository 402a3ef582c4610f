"""Progress of a plan in a terminal, one line for each change of a step; hidden characters are spelled out."""

import os
from collections.abc import Callable, Mapping, Sequence

from django.conf import settings

from catalog.core import clock
from catalog.text.deceptive_text import split_hidden
from catalog.ui.labels import format_duration
from plans.web.plan.overview import PlanOverview, StepOverview

Style = Callable[[str], str]
LABEL_WIDTH = 28


class ProgressDisplay:
    """Prints the progress of a plan; `styles` maps hues to functions that style text."""

    def __init__(self, write: Callable[[str], object], styles: Mapping[str, Style]) -> None:
        self._write_text = write
        self._styles = styles
        self._labels: dict[int, str] = {}

    def begin(self, overview: PlanOverview) -> None:
        self._write([as_plain_line(overview.plan.goal), plan_address(overview), ""])

    def show(self, overview: PlanOverview) -> None:
        """Print steps that started or changed since the last call."""
        for step in overview.steps:
            if step.started and self._labels.get(step.number) != step.label:
                self._labels[step.number] = step.label
                took_ms = step.took_ms
                if took_ms is None and step.since is not None:
                    took_ms = 1000 * max(0.0, (clock.now() - step.since).total_seconds())
                time = "" if took_ms is None else format_duration(took_ms)
                label = self._styled(step.word.hue, step.label.ljust(LABEL_WIDTH))
                lines = [f"{step.number:>5}  {label}{time.rjust(11)}  {as_plain_line(step.step.title)}"]
                if address := waiting_address(step):
                    lines.append(f"       {address}")
                self._write([f"{clock.now():%H:%M:%S}  {line}" for line in lines])

    def end(self, overview: PlanOverview) -> None:
        label = ", ".join(word.label for word in overview.words)
        took = f" in {format_duration(overview.elapsed_ms)}" if overview.elapsed_ms is not None else ""
        self._write(["", self._styled(overview.words[0].hue, f"{label}{took}") + f": {overview.tally}."])
        if overview.because:
            self._write([self._styled("danger", overview.because)])
        for step in overview.steps:
            if step.step.error:
                self._write([self._styled("danger", f"Step {step.number}: {as_plain_line(step.step.error)}")])

    def _styled(self, hue: str, text: str) -> str:
        return self._styles.get(hue, str)(text)

    def _write(self, lines: Sequence[str]) -> None:
        self._write_text("".join(f"{line}\n" for line in lines))


def plan_address(overview: PlanOverview) -> str:
    return _address(f"/plans/{overview.plan.public_id}/")


def waiting_address(step: StepOverview) -> str:
    """Return the URL where a person can act on a waiting step; empty if it does not wait for people."""
    if step.step.waiting_for == "approval" and step.step.call is not None:
        return _address(f"/approvals/?item={step.step.call.approval.public_id}")
    if step.step.waiting_for and step.word.hue == "human" and step.step.call is not None:
        return _address(f"/plans/{step.step.call.plan_ref}/?step={step.number}")
    return ""


def _address(path: str) -> str:
    """Return the URL of a page, or only its path if TOOLGATE_URL is not set."""
    return f"{settings.TOOLGATE_URL}{path}" if "TOOLGATE_URL" in os.environ else path


def as_plain_line(text: str) -> str:
    """Return text as one line with hidden characters spelled out."""
    return " ".join("".join(piece.text for piece in split_hidden(text)).split())
