"""Whole plans rebuilt in the plan builder, by form alone and by keyboard alone, equal to the original and started."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User

from plans.actions.drafts import read_draft
from plans.demo.stories import brief
from plans.models import Plan, PlanDraft
from tests.browser.building import Builder, normal
from tests.browser.conftest import PageAs
from tests.builders import make_plan, work_off

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]


def act(number: int, description: str, tool: str = "", **fields: Any) -> dict[str, Any]:
    step = {"step_id": number, "description": description, **fields}
    return {**step, "tool": tool} if tool else step


def ten_steps() -> dict[str, Any]:
    """A plan with variants, lists, members, numbers, choices, references, a check by parts and a note."""
    facts = {
        "ticker": "AAPL",
        "metrics": ["Revenue", "NetIncome"],
        "start_date": "2021-01-01",
        "end_date": "2023-12-31",
    }
    texts = {"first": "${apple}", "rate": 1.5, "names": ["a", "b"]}
    return {
        "goal": "Ten steps by keyboard",
        "steps": [
            act(1, "Agree on the companies"),
            act(2, "Look up Apple", "sec_financial_data", dependencies=[1], expected_key="apple",
                output_path=["results"], parameters={"query_type": "financial_facts", "parameters": facts}),
            act(3, "About Microsoft", "sec_financial_data", dependencies=[1], expected_key="microsoft",
                parameters={"query_type": "company_info", "parameters": {"ticker": "MSFT"}}),
            act(4, "Add up", "eval_form", parameters={"form": "sum([1, 2.5])"}, expected_key="total"),
            act(5, "List files", "list_files", parameters={"path": "reports", "recursive": True}),
            act(6, "Compose", "render_text", dependencies=[2, 4], expected_key="text", output_path=["results", "0"],
                parameters={"template": "{first} {rate} {names}", "values": texts}),
            act(7, "Save", "write_file", dependencies=[3, 6], expected_key="saved", output_path=["results", "0"],
                parameters={"path": "notes/ten.txt", "content": "${text}"}),
            act(8, "Read again", "read_file", dependencies=[7], parameters={"path": "${saved.path}"},
                done_check='text is not None and total >= 3 or text in ["a", "b"]'),
            act(9, "Search the files", "search_files", expected_key="found",
                parameters={"text": "margin", "path": "reports"}),
            act(10, "Mail it", "send_mail", dependencies=[6, 9],
                parameters={"to": ["ada@example.org", "ben@example.org"], "subject": "Ten", "body": "${text}"}),
        ],
    }  # fmt: skip


def sixty_steps() -> dict[str, Any]:
    """Twenty lookups, each with a sum and a text that uses it; each text waits for the one before."""
    steps = []
    for place in range(20):
        number = 3 * place + 1
        before = [number - 1] if place else []
        steps += [
            act(number, f"Look up {place}", "sec_financial_data", expected_key=f"company_{place}",
                parameters={"query_type": "company_info", "parameters": {"ticker": "AAPL"}}),
            act(number + 1, f"Add {place}", "eval_form", expected_key=f"sum_{place}", output_path=["results", "0"],
                parameters={"form": f"{place} + 1"}),
            act(number + 2, f"Write {place}", "render_text", dependencies=[number, number + 1, *before],
                parameters={"template": "{it}", "values": {"it": f"${{sum_{place}}}"}}),
        ]  # fmt: skip
    return {"goal": "Sixty steps", "steps": steps}


def rebuild(page_as: PageAs, ada: User, document: Mapping[str, Any], *, by_keyboard: bool) -> Builder:
    builder = Builder(page_as(ada, viewport={"width": 1440, "height": 900}), by_keyboard=by_keyboard)
    builder.build(document)
    assert normal(read_draft(PlanDraft.objects.get())) == normal(document)
    builder.start()
    plan = Plan.objects.filter(kind=Plan.Kind.PLAN).latest("pk")
    assert (plan.goal, plan.steps.filter(parent=None).count()) == (document["goal"], len(document["steps"]))
    return builder


def test_the_plan_of_the_demo_is_rebuilt_by_form(ada, catalog, page_as: PageAs) -> None:
    """Its results are chosen with the values of a plan that has run."""
    document = brief("AAPL", "MSFT", 2022).model_dump(mode="json", exclude_unset=True)
    work_off(make_plan(ada, *document["steps"], goal=document["goal"]))
    rebuild(page_as, ada, document, by_keyboard=False)


def test_a_plan_of_ten_steps_is_rebuilt_by_keyboard(ada, catalog, page_as: PageAs) -> None:
    rebuild(page_as, ada, ten_steps(), by_keyboard=True)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("by_keyboard", [False, True], ids=["form", "keyboard"])
@pytest.mark.parametrize("plan", ["demo", "ten", "sixty"])
def test_plans_of_every_size_are_rebuilt(ada, catalog, page_as: PageAs, plan: str, by_keyboard: bool) -> None:
    demo = brief("AAPL", "MSFT", 2022).model_dump(mode="json", exclude_unset=True)
    document = {"demo": demo, "ten": ten_steps(), "sixty": sixty_steps()}[plan]
    rebuild(page_as, ada, document, by_keyboard=by_keyboard)
