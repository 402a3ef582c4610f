"""Starter plans for the editor. Each one is valid unchanged."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_lazy

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True, slots=True)
class Starter:
    name: str
    label: "StrOrPromise"
    document: Mapping[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.document, indent=2, ensure_ascii=False)


def _facts(ticker: str) -> dict[str, Any]:
    wanted = {"ticker": ticker, "metrics": ["Revenue"], "start_date": "2022-01-01", "end_date": "2022-12-31"}
    return {"query_type": "financial_facts", "parameters": wanted}


ONE_STEP = Starter(
    "one-step",
    gettext_lazy("One step"),
    {
        "goal": "Say hello",
        "steps": [
            {
                "step_id": 1,
                "description": "Compose a greeting",
                "tool": "render_text",
                "parameters": {"template": "Hello, {name}!", "values": {"name": "world"}},
                "expected_key": "greeting",
            }
        ],
    },
)
FIGURES = Starter(
    "figures",
    gettext_lazy("Look up and compare"),
    {
        "goal": "Compare Apple and Microsoft revenue for fiscal 2022",
        "steps": [
            {
                "step_id": 1,
                "description": "Get Apple's revenue for 2022",
                "tool": "sec_financial_data",
                "parameters": _facts("AAPL"),
                "expected_key": "apple",
                "output_path": ["results", "0", "value"],
            },
            {
                "step_id": 2,
                "description": "Get Microsoft's revenue for 2022",
                "tool": "sec_financial_data",
                "parameters": _facts("MSFT"),
                "expected_key": "microsoft",
                "output_path": ["results", "0", "value"],
            },
            {
                "step_id": 3,
                "description": "Work out how many times as large Apple's is",
                "tool": "eval_form",
                "parameters": {"form": "${apple} / ${microsoft}"},
                "dependencies": [1, 2],
                "expected_key": "ratio",
                "output_path": ["results", "0"],
            },
        ],
    },
)
FILE = Starter(
    "file",
    gettext_lazy("Write a file, with approval"),
    {
        "goal": "Write a note and keep it in the workspace",
        "steps": [
            {
                "step_id": 1,
                "description": "Compose the note",
                "tool": "render_text",
                "parameters": {"template": "Remember the {thing}.\n", "values": {"thing": "milk"}},
                "expected_key": "note",
                "output_path": ["results", "0"],
            },
            {
                "step_id": 2,
                "description": "Write the note",
                "tool": "write_file",
                "parameters": {"path": "notes/reminder.txt", "content": "${note}"},
                "dependencies": [1],
                "expected_key": "written",
            },
        ],
    },
)
STARTERS = {starter.name: starter for starter in (ONE_STEP, FIGURES, FILE)}
