"""Saved filters: the state of a list under a name, for one person."""

from typing import Any

from django import forms
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from catalog.models import SavedFilter
from catalog.ui.lists import LISTS
from catalog.ui.page_forms import PageForm, render_form
from catalog.ui.requests import PageRequest, sign_in_required
from catalog.ui.toasts import announce

MAX_SAVED = 50
"""Maximum saved filters of one person for one list."""
MAX_STATE = 4000


class SavedFilterForm(PageForm):
    list_name = forms.CharField(widget=forms.HiddenInput, max_length=32)
    query = forms.CharField(widget=forms.HiddenInput, max_length=MAX_STATE)
    name = forms.CharField(label=gettext_lazy("Name of the filter"), max_length=80)

    def clean_list_name(self) -> str:
        name: str = self.cleaned_data["list_name"]
        if name not in LISTS:
            raise forms.ValidationError(_("This list does not exist."))
        return name


@require_POST
@sign_in_required
def save_filter(request: PageRequest) -> HttpResponse:
    """Store the state of a list under a name; a filter of this name is replaced. Unknown values are left out."""
    form = SavedFilterForm(request.POST)
    if form.is_valid():
        given = form.cleaned_data
        definition, params = LISTS[given["list_name"]], QueryDict(given["query"])
        query = definition.read(params, definition.offered(request.user, params))
        own: dict[str, Any] = {"person": request.user, "list_name": definition.name}
        others = SavedFilter.objects.filter(**own).exclude(name=given["name"])
        if others.count() < MAX_SAVED:
            SavedFilter.objects.update_or_create(**own, name=given["name"], defaults={"query": query.text})
            announce(request, _("Saved as “%(name)s”.") % {"name": given["name"]})
            return redirect(query.url)
        form.add_error(None, _("You have saved %(count)s filters. Delete one first.") % {"count": MAX_SAVED})
    return render_form(request, "lists/save.html", form, section="")


@require_POST
@sign_in_required
def delete_filter(request: PageRequest, number: int) -> HttpResponse:
    """Delete one of the viewer's own filters and return to its list."""
    found = get_object_or_404(SavedFilter, pk=number, person=request.user.pk)
    found.delete()
    announce(request, _("Deleted the saved filter “%(name)s”.") % {"name": found.name})
    return redirect(LISTS[found.list_name].path if found.list_name in LISTS else "home")
