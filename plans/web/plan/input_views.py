"""Views for a person's input to a plan: answers to questions, and new arguments for sent-back or failed calls."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from catalog.access.roles import NotAllowed
from catalog.errors import ToolgateError
from catalog.ui.forms.editor import ArgumentsEditor
from catalog.ui.requests import PageRequest, is_fragment_request, page_redirect, shown_status, sign_in_required
from plans.actions.give_input import (
    answer_question,
    is_sent_back,
    revise_arguments,
    step_waiting_for_answer,
    step_waiting_for_arguments,
)
from plans.actions.retry import STOPPED, arguments_to_edit, prepare_edit, retry_with, schema_to_edit, stopped_step
from plans.models import Plan, Step
from plans.store.selectors import may_control
from plans.web.access import control_plan, may_write, plan_or_404
from plans.web.plan.step_detail import step_level
from plans.web.plan.views import render_failure, run_action

if TYPE_CHECKING:
    from django.http import QueryDict

    from plans.store.requesters import Requester


@dataclass(slots=True, kw_only=True)
class ArgumentEditor(ArgumentsEditor):
    """Editor of a call's arguments; `fits` is true once the arguments were checked and accepted by the tool."""

    fits: bool = False
    answered_with: int = 200


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def arguments(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    plan = plan_or_404(request.user, public_id)
    try:
        if not (may_control(request.user, None, plan) and may_write(request)):
            raise NotAllowed(_("Only the plan's owner, as an operator, or an administrator can change its arguments."))
        has_stopped = plan.steps.get(step_id=step_id).status in STOPPED
        step = stopped_step(plan, step_id) if has_stopped else step_waiting_for_arguments(plan, step_id)
    except Step.DoesNotExist:
        raise Http404 from None
    except ToolgateError as error:
        return render_failure(request, public_id, {"step": str(step_id)}, error)
    original = step.call.arguments_json if step.call and is_sent_back(step) else arguments_to_edit(step)
    default_paths = step.call.default_paths if step.call else ()
    writing = ArgumentEditor(schema=_schema_of(step), original=original, default_paths=default_paths)
    if request.method != "POST":
        writing.fill(original)
        writing.render_or_show_json()
    else:
        try:
            writing.read(request.POST)
            if _apply_button(request, plan, step, writing):
                return page_redirect(request, f"{reverse('plan', args=[plan.public_id])}?step={step.step_id}")
            writing.draw()
        except ToolgateError as error:
            writing.answered_with = writing.show_error(error)
    template = "plans/_arguments.html" if is_fragment_request(request, "revising") else "plans/arguments.html"
    shown = {
        "section": "plans",
        "plan": plan,
        "step": step,
        "writing": writing,
        "level": step_level(step),
        "sent_back": is_sent_back(step),
    }
    return render(request, template, shown, status=shown_status(request, writing.answered_with))


@require_POST
@sign_in_required
def give_answer(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)

    def say(by: "Requester") -> None:
        answer_question(chosen, step_waiting_for_answer(chosen, step_id), request.POST.get("text", ""), by=by)

    try:
        return run_action(request, public_id, say, step_id, further=True)
    except Step.DoesNotExist:
        raise Http404 from None


def _schema_of(step: Step) -> dict[str, object]:
    if not is_sent_back(step):
        return schema_to_edit(step)
    schema: dict[str, object] = step.call.version.input_schema if step.call else {}
    return schema


def _apply_button(request: PageRequest, plan: Plan, step: Step, editor: ArgumentEditor) -> bool:
    """Submit or check the arguments, or change the form; return whether they were submitted."""
    sent: QueryDict = request.POST
    wanted, _, place = sent.get("do", "check").partition(":")
    if wanted not in ("send", "check"):
        editor.press(wanted, place)
        return False
    given, waits = editor.arguments(), is_sent_back(step)
    if wanted == "check":
        prepare_edit(plan, step, given)
        editor.fits = True
        return False

    def send(by: "Requester") -> None:
        (revise_arguments if waits else retry_with)(plan, step.step_id, given, by=by)

    control_plan(request.user, plan, send, further=True)
    return True
