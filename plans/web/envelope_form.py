"""Page on which a person proposes an envelope: purpose, whose calls, how long, and its items, one condition a line."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_http_methods

from approvals.models import Envelope
from approvals.policy_language.conditions import OPERATORS
from approvals.policy_language.envelopes import MAX_COUNT, MAX_MINUTES, MAX_PURPOSE, PROPOSE_ENVELOPE, SCOPES
from approvals.policy_language.typed_conditions import read_condition
from catalog.access.roles import NotAllowed
from catalog.errors import ParameterError, ToolError, ToolgateError
from catalog.ui.page_forms import CardSelect, CardText, FormError, MultilineField, PageForm
from catalog.ui.requests import PageRequest, sign_in_required
from plans.actions.call import CallOrder, create_call
from plans.store.requesters import Requester
from plans.web.access import may_write

MAX_ITEMS_ON_PAGE = 20
"""Items that the form can have; larger proposals are made over REST."""


class ConditionLines(MultilineField):
    """Conditions, one a line: path, operator, value. A value that is no JSON is a text; in a list, commas separate."""

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in (super().clean(value) or "").splitlines() if line.strip()]
        return [_condition(line) for line in lines]


def _condition(line: str) -> dict[str, Any]:
    path, operator, text = (*line.split(None, 2), "", "")[:3]
    if operator not in OPERATORS:
        example = gettext("Write path, operator and value on each line, such as: to equals ann@example.org")
        raise forms.ValidationError(f"“{line[:80]}”: {example}")
    return read_condition(path, operator, text)


class ItemForm(PageForm):
    """Calls of one tool."""

    tool = forms.CharField(label=gettext_lazy("Tool"), max_length=128, widget=forms.TextInput({"class": "mono"}))
    arguments = ConditionLines(
        label=gettext_lazy("Arguments"),
        required=False,
        widget=forms.Textarea({"class": "mono", "rows": 3, "spellcheck": "false"}),
        help_text=gettext_lazy(
            "One condition a line, such as: to equals ann@example.org, path starts_with reports/, size less_than 5, "
            "kind in bug, question. note exists means that note can be anything. A call with an argument that no line "
            "names waits."
        ),
    )
    count = forms.IntegerField(label=gettext_lazy("Calls at most"), min_value=1, max_value=MAX_COUNT, initial=1)
    sum_path = forms.CharField(
        label=gettext_lazy("Number to add up"),
        required=False,
        max_length=200,
        widget=forms.TextInput({"class": "mono", "placeholder": "amount"}),
    )
    at_most = forms.FloatField(label=gettext_lazy("Sum at most"), required=False)

    def document(self) -> dict[str, Any]:
        data = self.cleaned_data
        found = {name: data[name] for name in ("tool", "arguments", "count")}
        if data["sum_path"] or data["at_most"] is not None:
            found["sum"] = {"path": data["sum_path"], "at_most": data["at_most"] if data["at_most"] is not None else 0}
        return found


def _count(data: QueryDict) -> int:
    """Return the number of items that a sent form has."""
    count = data.get("items", "")
    return min(MAX_ITEMS_ON_PAGE, max(1, int(count))) if count.isascii() and count.isdecimal() and len(count) < 4 else 1


class EnvelopeForm(PageForm):
    purpose = MultilineField(
        label=gettext_lazy("Purpose"),
        max_length=MAX_PURPOSE,
        widget=forms.Textarea({"rows": 2}),
        help_text=gettext_lazy("The task in words, for the people who decide."),
    )
    scope = forms.ChoiceField(
        label=gettext_lazy("For"),
        initial="session",
        choices=[
            ("session", gettext_lazy("A session of yours")),
            ("token", gettext_lazy("A token of yours")),
            ("plan", gettext_lazy("A plan of yours")),
        ],
        widget=CardSelect(
            {
                "session": CardText(gettext_lazy("Your calls that name this session.")),
                "token": CardText(gettext_lazy("Calls of an agent or program through this token, by its number.")),
                "plan": CardText(gettext_lazy("Calls of the steps of this plan, by its id.")),
            }
        ),
    )
    ref = forms.CharField(
        label=gettext_lazy("Name, number or id"), max_length=150, widget=forms.TextInput({"class": "mono"})
    )
    minutes = forms.IntegerField(
        label=gettext_lazy("Minutes"),
        min_value=1,
        max_value=MAX_MINUTES,
        initial=60,
        help_text=gettext_lazy("From now on; the wait for approval counts."),
    )

    def __init__(self, data: QueryDict | None = None, *, initial: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, initial=dict(initial or {}), auto_id="f-%s")
        count = _count(data) if data is not None else 1
        self.items = [ItemForm(data, prefix=f"item-{number}", auto_id="f-%s") for number in range(count)]

    @classmethod
    def with_more_items(cls, data: QueryDict) -> "EnvelopeForm":
        """Return the form as it was typed, not judged yet, with one more item."""
        form = cls(initial=data.dict())
        count = min(MAX_ITEMS_ON_PAGE, _count(data) + 1)
        form.items = [
            ItemForm(
                prefix=f"item-{number}",
                auto_id="f-%s",
                initial={
                    name: data[f"item-{number}-{name}"]
                    for name in ItemForm.base_fields
                    if f"item-{number}-{name}" in data
                },
            )
            for number in range(count)
        ]
        return form

    def is_valid(self) -> bool:
        return all([super().is_valid(), *(item.is_valid() for item in self.items)])

    def document(self) -> dict[str, Any]:
        """Return the arguments of the proposal of a valid form."""
        data = self.cleaned_data
        ref: Any = data["ref"]
        if data["scope"] == SCOPES[0] and ref.isascii() and ref.isdecimal():
            ref = int(ref[:18])
        items = [item.document() for item in self.items]
        return {
            "purpose": data["purpose"],
            "items": items,
            "minutes": data["minutes"],
            "for": {data["scope"]: ref},
        }

    @property
    def error_list(self) -> list[FormError]:
        return [*super().error_list, *(error for item in self.items for error in item.error_list)]

    def add_problems(self, error: ToolgateError) -> None:
        """Show the problems of a proposal at the fields that they are about."""
        details = error.details if isinstance(error, ParameterError) and error.details else {}
        for each in details.get("errors") or [{"path": "", "message": error.message}]:
            first, *rest = str(each["path"]).split(".")
            if first == "items" and rest and rest[0].isdecimal() and int(rest[0]) < len(self.items):
                item, place = self.items[int(rest[0])], rest[1] if len(rest) > 1 else ""
                name = {"sum": "at_most" if rest[-1] == "at_most" else "sum_path"}.get(place, place)
                item.add_error(name if name in item.fields else "tool", each["message"])
            else:
                name = "ref" if first == "for" else first
                self.add_error(name if name in self.fields else None, each["message"])


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def propose_envelope_page(request: PageRequest) -> HttpResponse:
    """Show the form of a proposal; a POST adds an item, or proposes the envelope."""
    if request.method != "POST":
        known = {name: request.GET[name][:150] for name in ("scope", "ref") if name in request.GET}
        return _render(request, EnvelopeForm(initial=known))
    if request.POST.get("do") == "add":
        return _render(request, EnvelopeForm.with_more_items(request.POST))
    if not may_write(request):
        raise NotAllowed(gettext("Proposing an envelope needs the role operator or administrator. Nothing was stored."))
    form = EnvelopeForm(request.POST)
    if form.is_valid():
        try:
            call = create_call(CallOrder(PROPOSE_ENVELOPE, form.document()), by=Requester(request.user))
        except ToolError as error:
            form.add_problems(error)
        else:
            envelope = Envelope.objects.filter(call=call).first()
            if envelope is None:  # a process that has the catalog's code proposes it
                messages.info(
                    request, gettext("Another version of this server proposes the envelope. It appears soon.")
                )
                return redirect("envelopes")
            messages.success(request, gettext("Proposed. People now decide on it like on a call that waits."))
            return redirect("envelope", envelope.public_id)
    return _render(request, form)


def _render(request: PageRequest, form: EnvelopeForm) -> HttpResponse:
    status = 422 if form.is_bound and form.error_list else 200
    return render(request, "envelopes/new.html", {"section": "approvals", "form": form}, status=status)
