"""Page of one draft: progress of the planner, preview of the drafted plan, and the plan started from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

from django.contrib.auth.models import User
from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from catalog.access.roles import ADMINISTRATOR, NotAllowed, has_role
from catalog.calls.privacy import is_own_call
from catalog.models import Call
from catalog.text.formats import format_number
from catalog.ui.labels import Badge
from plans import states
from plans.models import ModelUse, Plan
from plans.planner import drafts
from plans.planner.drafts import FinishedDraft
from plans.spec import StepDocument
from plans.store import selectors
from plans.store.privacy import hidden_call_parts
from plans.store.requesters import Requester
from plans.web.compose.ask_form import STRATEGIES, AskForm, asking_role_required, draft_word, may_ask
from plans.web.compose.text import SEVERITIES, PlanEditor, sketch_graph
from plans.web.graph import Drawing

STEP_ROLES = {
    "ask_user": gettext_lazy("asks you a question and waits for the answer"),
    "plan_on": gettext_lazy("continues planning with your answer"),
    "compose_reply": gettext_lazy("writes the reply from the results"),
}
"""Descriptions of the planner's own tools, which the catalog does not list."""


@dataclass(frozen=True, slots=True)
class PreviewStep:
    step: StepDocument
    level: str
    role: str
    reason: str

    @property
    def waits(self) -> bool:
        """True if a person must approve the step before it runs."""
        return self.level == "dangerous"

    @property
    def arguments(self) -> str:
        return json.dumps(self.step.parameters, indent=2, ensure_ascii=False) if self.step.parameters else ""


@dataclass(frozen=True, slots=True)
class DraftProblem:
    severity: str
    message: str
    suggestion: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ModelSpending:
    times: int = 0
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    latency_ms: int = 0

    @property
    def tokens(self) -> str:
        return _("%(input)s read, %(output)s written") % {
            "input": format_number(self.input_tokens),
            "output": format_number(self.output_tokens),
        }


@dataclass(frozen=True)
class DraftPage:
    """Data for the templates; `setback` is the reason why the last action failed."""

    call: Call
    viewer: User
    drafted: FinishedDraft | None
    plan: Plan | None
    spent: ModelSpending
    setback: str = ""
    form: AskForm = field(default_factory=AskForm)

    @property
    def request(self) -> str:
        return drafts.request_of(self.call)

    @property
    def strategy(self) -> str:
        name = self.call.arguments_json.get("strategy") or STRATEGIES[0].name
        return next((str(each.label) for each in STRATEGIES if each.name == name), str(name))

    @property
    def word(self) -> Badge:
        return draft_word(self.call)

    @property
    def is_asking(self) -> bool:
        return self.call.public_status in ("running", "waiting")

    @property
    def mark(self) -> str:
        """A value that changes whenever the page has new content."""
        return f"{self.call.status}-{self.spent.times}-{int(self.plan is not None)}"

    @property
    def is_own(self) -> bool:
        """True if the viewer requested the draft and may still request plans."""
        return is_own_call(self.viewer, self.call) and may_ask(self.viewer)

    @property
    def may_read_prompts(self) -> bool:
        """True if the viewer may read the prompts: the requester and administrators."""
        return is_own_call(self.viewer, self.call) or has_role(self.viewer, ADMINISTRATOR)

    @property
    def has_plan(self) -> bool:
        return self.drafted is not None and self.drafted.document is not None

    @cached_property
    def writing(self) -> PlanEditor:
        """The drafted plan in an editor, which validates it against the current catalog."""
        document = self.drafted.document if self.drafted else None
        text = json.dumps(document, indent=2, ensure_ascii=False) if document is not None else ""
        return PlanEditor(text, by=Requester(self.viewer))

    @cached_property
    def drawing(self) -> Drawing | None:
        return sketch_graph(self.writing) if self.has_plan else None

    @property
    def question(self) -> str:
        output = self.drafted.output if self.drafted else None
        return (output.input_request or "") if output and output.needs_user_input else ""

    @cached_property
    def problems(self) -> Sequence[DraftProblem]:
        """Errors and warnings, errors first, from drafting and from the current catalog."""
        found = []
        for drafted in self.drafted.problems if self.drafted else ():
            severity = str(drafted.get("severity", "error"))
            severity = severity if severity in SEVERITIES else "error"
            step = _step_at(str(drafted.get("path", "")), self.writing.numbers)
            message, suggestion = str(drafted.get("message", "")), str(drafted.get("suggestion") or "")
            found.append(DraftProblem(severity, message, suggestion, step))
        for problem in self.writing.problems if self.has_plan else ():
            step = _step_at(problem.path, self.writing.numbers)
            found.append(DraftProblem(problem.severity, problem.message, problem.suggestion or "", step))
        wrong = (each for each in dict.fromkeys(found) if each.severity != "info")
        return sorted(wrong, key=lambda each: SEVERITIES.index(each.severity))

    @property
    def errors(self) -> int:
        return sum(problem.severity == "error" for problem in self.problems)

    @property
    def may_start(self) -> bool:
        return self.is_own and self.has_plan and not self.errors and self.plan is None

    @property
    def may_edit(self) -> bool:
        return self.is_own and self.has_plan and self.plan is None

    @cached_property
    def steps(self) -> Sequence[PreviewStep]:
        levels, reasons = dict(self.writing.tools), self._reasons()
        return [
            PreviewStep(
                step,
                levels.get(step.tool or "", ""),
                str(STEP_ROLES.get(step.tool or "", "")),
                reasons.get(number, ""),
            )
            for number, step in sorted(self.writing.steps.items())
        ]

    def _reasons(self) -> Mapping[int, str]:
        """Return the reasons of the planner's calls by step, without reasons equal to the step's description."""
        wanted = list(self.drafted.output.tool_calls) if self.drafted else []
        found: dict[int, str] = {}
        for number, step in sorted(self.writing.steps.items()):
            call = next((each for each in wanted if each.tool == step.tool), None)
            if call is not None:
                wanted.remove(call)
                found[number] = "" if " ".join(call.reason.split()) == step.description else call.reason
        return found

    @property
    def waits(self) -> int:
        """Number of steps that will wait for approval."""
        return sum(step.waits for step in self.steps)


def _step_at(path: str, numbers: Mapping[int, int]) -> int | None:
    part, _, rest = path.partition(".")
    index = rest.partition(".")[0]
    return numbers.get(int(index)) if part == "steps" and index.isdecimal() and len(index) < 6 else None


def draft_page(viewer: User, public_id: str, setback: str = "") -> DraftPage:
    call = draft_or_404(viewer, public_id)
    uses = list(ModelUse.objects.filter(call=call).defer("prompt", "answer", "error"))
    costs = [use.cost for use in uses if use.cost is not None]
    return DraftPage(
        call=call,
        viewer=viewer,
        drafted=drafts.finished_draft(call),
        plan=drafts.started_plan(call),
        spent=ModelSpending(
            times=len(uses),
            model=uses[-1].model if uses else "",
            input_tokens=sum(use.input_tokens for use in uses),
            output_tokens=sum(use.output_tokens for use in uses),
            cost=sum(costs, Decimal(0)) if costs else None,
            latency_ms=sum(use.latency_ms for use in uses),
        ),
        setback=setback,
        form=AskForm(
            again=True,
            initial={
                "request": drafts.request_of(call),
                "strategy": call.arguments_json.get("strategy") or STRATEGIES[0].name,
            },
        ),
    )


def draft_or_404(viewer: User, public_id: str) -> Call:
    try:
        call = selectors.call_for(viewer, None, public_id)
    except Call.DoesNotExist:
        raise Http404 from None
    if call.tool_name != states.DRAFT_TOOL or hidden_call_parts(viewer, call) is not None:
        raise Http404
    return call


def start_drafted_plan(call: Call, *, by: Requester) -> Plan:
    """Start the drafted plan. Raises NotAllowed, Conflict and PlanProblems."""
    if not is_own_call(by.user, call):
        raise NotAllowed(_("Only the requester of this draft can start it. Nothing was stored."))
    if not may_ask(by.user):
        raise asking_role_required()
    return drafts.start_draft(call, by=by)
