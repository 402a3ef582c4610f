"""The pages by which a plan is taken further than it was planned: retried, cloned, skipped in part, changed."""

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from catalog.errors import Conflict, ParameterError, ToolgateError
from catalog.ui.requests import PageRequest, signed_in, wants_part
from plans.actions.change import change_plan, is_open_to_change
from plans.actions.clone import clone_plan
from plans.actions.create import PlanProblems
from plans.actions.retry import retry_plan
from plans.actions.skip import skip_step
from plans.drawing import sketch_of
from plans.models import Plan, Step
from plans.plan_page import control, plan_or_404, status_of, step_of
from plans.rewriting import Rewriting, text_to_change
from plans.store.requesters import Requester
from plans.store.selectors import may_control
from plans.views import NEEDS_ROLE, acted, may_write, said, set_back

MOST_LISTED = 10_000
"""Characters of the list of steps that a page offered for change."""


@require_POST
@signed_in
def retry(request: PageRequest, public_id: str) -> HttpResponse:
    """Retry a plan from one failed step, or from all."""
    chosen, step = plan_or_404(request.user, public_id), step_of(request.POST.dict())

    def act(by: Requester) -> None:
        try:
            retry_plan(chosen, step, by=by)
        except Step.DoesNotExist:
            raise Http404 from None

    done = "What failed is tried again." if step is None else f"Step {step} is tried again."
    return said(request, acted(request, public_id, act, step, further=True), done)


@require_POST
@signed_in
def skip(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    """Skip a step with a reason."""
    chosen = plan_or_404(request.user, public_id)

    def act(by: Requester) -> None:
        try:
            skip_step(chosen, step_id, request.POST.get("comment", ""), by=by)
        except Step.DoesNotExist:
            raise Http404 from None

    return said(request, acted(request, public_id, act, step_id, further=True), f"Step {step_id} was skipped.")


@require_POST
@signed_in
def clone(request: PageRequest, public_id: str) -> HttpResponse:
    """Store the plan anew and lead to the new one."""
    chosen = plan_or_404(request.user, public_id)
    try:
        if not may_write(request):
            raise NEEDS_ROLE
        made = clone_plan(chosen, by=Requester(request.user))
    except PlanProblems as refusal:
        problem = refusal.problems[0]
        return set_back(request, public_id, {}, ParameterError(f"It could not be submitted today: {problem.message}"))
    except ToolgateError as error:
        return set_back(request, public_id, {}, error)
    return redirect(f"/plans/{made.public_id}/")


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def change(request: PageRequest, public_id: str) -> HttpResponse:
    """Show what may be changed of a plan as text; check the text, or change the plan."""
    chosen = plan_or_404(request.user, public_id)
    may = may_control(request.user, None, chosen) and may_write(request)
    if not (may and is_open_to_change(chosen)):
        refusal = Conflict("Only its owner, as an operator, or an administrator can change it, while it goes on.")
        return set_back(request, public_id, {}, refusal)
    if request.method != "POST":
        listed = Rewriting("", chosen, frozenset()).free
        return _written(request, Rewriting(text_to_change(chosen), chosen, listed))
    text = request.POST.get("text", "").replace("\r\n", "\n")
    writing = Rewriting(text, chosen, _numbers(request.POST.get("listed", "")))
    writing = writing.with_fix(request.POST.get("fix", ""))
    return _changed(request, writing) if request.POST.get("do") == "change" else _written(request, writing)


def _numbers(text: str) -> frozenset[int]:
    """Read the steps that the page had offered; what is no number was not."""
    parts = text[:MOST_LISTED].split(",")
    return frozenset(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 11)


def _changed(request: PageRequest, writing: Rewriting) -> HttpResponse:
    """Change the plan as the text says, or say why not, with all that was typed."""
    plan, seen = writing.plan, request.POST.get("seen", "")
    if not writing.is_json or (writing.errors and not writing.has_begun):
        return _written(request, writing, status=422)
    try:
        if not writing.changes_nothing:
            wanted = writing.change(int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 16 else None)
            control(request.user, plan, lambda by: change_plan(plan, wanted, by=by), further=True)
    except PlanProblems:
        return _written(request, writing, status=422)
    except ToolgateError as error:
        return _written(request, writing, setback=error.message, status=status_of(error))
    return redirect(f"/plans/{plan.public_id}/")


def _written(request: PageRequest, writing: Rewriting, *, setback: str = "", status: int = 200) -> HttpResponse:
    """Show the text with what was found in it; what is offered for change is what can be changed now."""
    now: Plan = plan_or_404(request.user, writing.plan.public_id)
    template = "plans/_checked.html" if wants_part(request, "findings") else "plans/change.html"
    shown = {
        "section": "plans",
        "plan": now,
        "writing": writing,
        "listed": ",".join(map(str, sorted(writing.listed & Rewriting("", now, frozenset()).free))),
        "drawing": sketch_of(writing),
        "setback": setback,
    }
    return render(request, template, shown, status=status)
