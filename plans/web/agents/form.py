"""Forms of an agent: its editor, and the task that starts a run."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from django import forms
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from catalog.errors import ToolError, ToolgateError
from catalog.inventory import snapshot
from catalog.inventory.selectors import LEVELS
from catalog.models import Category
from catalog.ui.page_forms import CardSelect, CardText, MultilineField, PageForm
from plans.agents.definitions import ToolFilter, agent_document
from plans.engine.questions import ASK_USER
from plans.llm import provider
from plans.llm.tools import EXCLUDED_CATEGORIES
from plans.models import Agent
from plans.web.compose.ask_form import STRATEGIES

LIMITS = ("rounds", "calls", "tokens", "cost", "seconds")
MAX_CHOICES = 500
MAX_DIGITS = 12
MAX_TASK = 500


class LimitField(forms.CharField):
    """A limit of a run, as typed; whole numbers become integers, and the service refuses any other text."""

    def __init__(self, *, attrs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        widget = forms.TextInput({"inputmode": "numeric", "maxlength": MAX_DIGITS, **(attrs or {})})
        super().__init__(required=False, empty_value=None, widget=widget, **kwargs)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else text


class AgentForm(PageForm):
    """The editor of an agent. The service validates the agent; the form shows its problems at the fields.

    No field is required here, so that all problems of a submission are found together.
    """

    updated_at = forms.CharField(required=False, widget=forms.HiddenInput)
    name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,
        widget=forms.TextInput({"class": "mono", "maxlength": 64, "required": True}),
        help_text=gettext_lazy(
            "Lowercase letters, digits, - and _. Plans refer to this name, so it cannot be changed later."
        ),
    )
    instructions = MultilineField(
        label=gettext_lazy("Instructions"),
        required=False,
        widget=forms.Textarea({"rows": 8, "maxlength": 20_000, "required": True}),
        help_text=gettext_lazy(
            "What the agent is for and how it should work. People and the planner see the first line; all of it is "
            "sent to the model's provider."
        ),
    )
    model = forms.CharField(
        label=gettext_lazy("Model"),
        required=False,
        widget=forms.TextInput({"class": "mono", "maxlength": 128}),
    )
    strategy = forms.ChoiceField(
        label=gettext_lazy("Strategy"),
        required=False,
        choices=[(each.name, each.label) for each in STRATEGIES],
        widget=CardSelect({each.name: CardText(each.says) for each in STRATEGIES}),
        initial=STRATEGIES[0].name,
    )
    max_level = forms.ChoiceField(
        label=gettext_lazy("Highest safety level"),
        required=False,
        choices=[(level, level.title()) for level in LEVELS],
        initial="cautious",
    )
    categories = forms.MultipleChoiceField(
        label=gettext_lazy("Categories"), required=False, widget=forms.CheckboxSelectMultiple
    )
    names = forms.MultipleChoiceField(
        label=gettext_lazy("Individual tools"), required=False, widget=forms.CheckboxSelectMultiple
    )
    rounds = LimitField(label=gettext_lazy("Model turns"), initial="10", attrs={"required": True})
    calls = LimitField(label=gettext_lazy("Tool calls"))
    tokens = LimitField(label=gettext_lazy("Tokens, input and output"))
    cost = forms.CharField(
        label=gettext_lazy("US dollars"),
        required=False,
        empty_value=None,
        widget=forms.TextInput({"inputmode": "decimal", "maxlength": 16}),
        help_text=gettext_lazy("Counted if the price of the model is known."),
    )
    seconds = LimitField(
        label=gettext_lazy("Seconds of work"), help_text=gettext_lazy("Time spent waiting for people is not counted.")
    )
    groups = forms.MultipleChoiceField(
        label=gettext_lazy("Groups"), required=False, widget=forms.CheckboxSelectMultiple
    )
    enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)

    def __init__(self, data: QueryDict | None = None, *, agent: Agent | None = None) -> None:
        super().__init__(data, initial=_initial(agent) if agent else None, auto_id="f-%s")
        if agent is not None:
            del self.fields["name"]
        tools = snapshot.callable_tools().items()
        self.levels = {
            name: each.tool.safety_level
            for name, each in tools
            if name == ASK_USER or EXCLUDED_CATEGORIES.isdisjoint(each.tool.categories)
        }
        categories = Category.objects.exclude(name__in=EXCLUDED_CATEGORIES)
        self._offer("names", sorted(self.levels))
        self._offer("categories", _names_of(categories))
        self._offer("groups", _names_of(Group.objects.all()))
        default = provider.configured_model()
        self.fields["model"].widget.attrs["placeholder"] = default or "provider:model"
        self.fields["model"].help_text = (
            _("Leave empty for the default model (%(model)s).") % {"model": default}
            if default
            else _("Required: no default model is configured (TOOLGATE_MODEL).")
        )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("enabled") and cleaned.get("model") == "" and not provider.configured_model():
            problem = _("Name a model, as in provider:model: no default model is configured (TOOLGATE_MODEL).")
            self.add_error("model", forms.ValidationError(problem, code="required"))
        return cleaned

    def _offer(self, field: str, names: Sequence[str]) -> None:
        """Offer these names and all checked names, even if they no longer exist: the service validates them."""
        missing = [name for name in self[field].value() or () if name not in names]
        cast("forms.ChoiceField", self.fields[field]).choices = [(name, name) for name in (*missing, *names)]

    @property
    def seen(self) -> datetime | None:
        return parse_datetime(self.cleaned_data["updated_at"][:40])

    @property
    def tools(self) -> ToolFilter:
        """The tool filter in the form, without its invalid parts."""
        shown = {name: self[name].value() or [] for name in ("names", "categories")}
        names, categories = ([name[:64] for name in shown[field] if name][:200] for field in shown)
        level = self["max_level"].value()
        known = {"max_level": level} if level in LEVELS else {}
        return ToolFilter.model_validate({"names": names, "categories": categories, **known})

    def document(self) -> dict[str, Any]:
        """Return the agent of a valid form as a body for the service."""
        data = dict(self.cleaned_data)
        del data["updated_at"]
        tools = {name: data.pop(name) for name in ("names", "categories", "max_level")}
        budget = {name: data.pop(name) for name in LIMITS}
        return data | {"tools": tools, "budget": budget}

    def add_problems(self, error: ToolgateError) -> None:
        details = error.details if isinstance(error, ToolError) else {}
        for each in details.get("errors") or [{"path": "", "message": error.message}]:
            name = str(each["path"]).removeprefix("tools.").removeprefix("budget.").partition(".")[0]
            self.add_error(name if name in self.fields else None, each["message"])


class TaskForm(PageForm):
    """A task for an agent. With `key`, a form that is submitted twice starts one plan."""

    task = MultilineField(
        label=gettext_lazy("Task"),
        required=False,
        widget=forms.Textarea({"rows": 3, "maxlength": MAX_TASK, "required": True}),
        help_text=gettext_lazy(
            "Creates a plan of one step and starts it immediately. The text is sent to the language model: do not "
            "include passwords."
        ),
    )
    key = forms.CharField(required=False, widget=forms.HiddenInput, initial=lambda: secrets.token_urlsafe(18))

    def __init__(self, data: QueryDict | None = None) -> None:
        super().__init__(data, auto_id="%s")

    def clean_task(self) -> str:
        task: str = self.cleaned_data["task"]
        if not task:
            raise forms.ValidationError(_("Describe the task in a sentence or two."))
        if len(task) > MAX_TASK:
            raise forms.ValidationError(
                _("The task has %(length)s characters, but the maximum is %(max)s.")
                % {"length": f"{len(task):,}", "max": MAX_TASK}
            )
        return task

    def renew_key(self) -> None:
        """Set a new key, so that submitting the form again starts another plan."""
        self.data = {name: self.data[name] for name in self.data} | {"key": secrets.token_urlsafe(18)}


def _initial(agent: Agent) -> dict[str, Any]:
    document = agent_document(agent)
    budget = document.budget.model_dump()
    return {
        "updated_at": agent.updated_at.isoformat(),
        "instructions": document.instructions,
        "model": document.model,
        "strategy": str(document.strategy),
        "max_level": str(document.tools.max_level),
        "names": document.tools.names,
        "categories": document.tools.categories,
        "groups": document.groups,
        "enabled": document.enabled,
        **{name: "" if budget[name] is None else f"{budget[name]}" for name in LIMITS},
    }


def _names_of(rows: QuerySet[Any]) -> list[str]:
    return list(rows.order_by("name").values_list("name", flat=True)[:MAX_CHOICES])
