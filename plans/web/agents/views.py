"""Views of agents. Administrators change agents; other users read them and give them tasks."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.errors import Conflict, ParameterError, ToolgateError
from catalog.ui.requests import PageRequest, is_fragment_request, sign_in_required
from plans.actions.create import PlanProblems
from plans.agents import administration
from plans.llm.provider import NotConfigured
from plans.models import Agent
from plans.store.requesters import Requester
from plans.web.access import error_status
from plans.web.agents.form import AgentForm, TaskForm
from plans.web.agents.page import agent_list_page, agent_or_404, agent_page, give_task, new_agent_page

NO_MODEL = 503


@require_safe
@sign_in_required
def agents(request: PageRequest) -> HttpResponse:
    return render(request, "agents/agents.html", agent_list_page(request.user))


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def new(request: PageRequest) -> HttpResponse:
    if request.method != "POST":
        return render(request, "agents/agent.html", new_agent_page(request.user))
    form = AgentForm(request.POST)
    shown = new_agent_page(request.user, form)
    if request.POST.get("do") != "save":
        return render(request, _template(request), shown)
    made = _save_agent(request, form)
    if made is None:
        return render(request, "agents/agent.html", shown, status=422)
    messages.success(request, _("Created %(agent)s. Plans can use it now.") % {"agent": made.name})
    return redirect("agent", made.name)


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def agent(request: PageRequest, public_id: str) -> HttpResponse:
    if request.method != "POST":
        return render(request, "agents/agent.html", agent_page(request.user, public_id))
    row = agent_or_404(request.user, public_id)
    form = AgentForm(request.POST, agent=row)
    if request.POST.get("do") != "save":
        return render(request, _template(request), agent_page(request.user, public_id, form))
    saved = _save_agent(request, form, row)
    if saved is None:
        return render(request, "agents/agent.html", agent_page(request.user, public_id, form), status=422)
    messages.success(request, _("Saved %(agent)s. Runs that have begun keep the old settings.") % {"agent": saved.name})
    return redirect("agent", public_id)


def _template(request: PageRequest) -> str:
    """Return the template of a form that is not saved: its summary alone while it is filled in."""
    return "agents/_offers.html" if is_fragment_request(request, "offers") else "agents/agent.html"


def _save_agent(request: PageRequest, form: AgentForm, known_agent: Agent | None = None) -> Agent | None:
    if not form.is_valid():
        return None
    try:
        if known_agent is None:
            return administration.create(form.document(), by=request.user)
        return administration.change_agent(known_agent, form.document(), by=request.user, seen=form.seen)
    except (ParameterError, Conflict) as error:
        form.add_problems(error)
        return None


@require_POST
@sign_in_required
def end(request: PageRequest, public_id: str) -> HttpResponse:
    """Delete an agent, or disable it if it was ever used."""
    row = agent_or_404(request.user, public_id)
    try:
        ended = administration.end_agent(row, by=request.user)
    except Conflict as error:
        messages.error(request, error.message)
    else:
        kept = Agent.objects.filter(name=ended.name).exists()
        done = _("Disabled %(agent)s. It was used, so it is kept.") if kept else _("Deleted %(agent)s.")
        messages.success(request, done % {"agent": row.name})
    return redirect("agents")


@require_POST
@sign_in_required
def task(request: PageRequest, public_id: str) -> HttpResponse:
    row = agent_or_404(request.user, public_id)
    form, status = TaskForm(request.POST), 422
    if form.is_valid():
        try:
            return redirect("plan", give_task(row, **form.cleaned_data, by=Requester(request.user)))
        except ToolgateError as error:
            found = error.problems[0].message if isinstance(error, PlanProblems) else ""
            form.add_error("task", found or error.message)
            status = NO_MODEL if isinstance(error, NotConfigured) else error_status(error)
    form.renew_key()
    return render(request, "agents/agent.html", agent_page(request.user, public_id, task=form), status=status)
