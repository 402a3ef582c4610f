"""Pages of help: the index with its search, a guide, and the guide that fits a section."""

from django import forms
from django.http import FileResponse, Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from catalog.ui.page_forms import PageForm
from catalog.ui.requests import PageRequest, sign_in_required
from config.help import guides


class SearchForm(PageForm):
    q = forms.CharField(
        label=gettext_lazy("Search titles and headings"),
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"type": "search", "autocomplete": "off"}),
    )


@require_safe
@sign_in_required
def help_index(request: PageRequest) -> HttpResponse:
    form = SearchForm(request.GET)
    form.is_valid()
    query = form.cleaned_data.get("q", "")
    shown = {
        "form": form,
        "query": query,
        "results": guides.search_guides(query) if query else [],
        "groups": [(label, [guides.read_guide(name) for name in names]) for label, names in guides.GROUPS],
    }
    return render(request, "help/index.html", {"section": "help", **shown})


@require_safe
@sign_in_required
def help_guide(request: PageRequest, name: str) -> HttpResponse:
    if name not in guides.NAMES:
        shown = {"section": "help", "name": name, "similar": guides.similar_guides(name)}
        return render(request, "help/not_found.html", shown, status=404)
    return render(request, "help/guide.html", {"section": "help", "guide": guides.read_guide(name)})


@require_safe
@sign_in_required
def help_for_section(request: PageRequest, section: str) -> HttpResponse:
    """Redirect to the guide that explains the pages of a section; to the index if there is none."""
    name, _, anchor = guides.GUIDE_OF_SECTION.get(section, "").partition("#")
    if not name:
        return redirect("help")
    return redirect(reverse("help-guide", args=[name]) + (f"#{anchor}" if anchor else ""))


@require_safe
@sign_in_required
def help_picture(request: PageRequest, name: str) -> FileResponse:
    try:
        file = (guides.FOLDER / "screenshots" / f"{name}.png").open("rb")
    except OSError:
        raise Http404 from None
    return FileResponse(file, content_type="image/png")
