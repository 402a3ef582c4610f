"""Pages of groups for administrators: roles and the groups that policies name, with their members."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.db.models import Q
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from rest_framework.exceptions import ValidationError

from approvals.models import Policy
from approvals.policies.group_use import policies_naming_groups
from approvals.web.people import ROLE_LABELS, ROLE_TEXTS, PersonRow, person_rows, refusals_shown
from catalog.access import people
from catalog.access.people import MAX_GROUP_NAME, MAX_USERNAME
from catalog.access.roles import ROLES, has_fresh_sign_in, in_any_group
from catalog.errors import Conflict, ParameterError
from catalog.rest.pagination import PageCursor, PageParameters, paginate
from catalog.ui.list_views import render_list
from catalog.ui.lists import Column, ListDefinition, SortOrder, register_list
from catalog.ui.page_forms import FormSection, PageForm, render_form
from catalog.ui.requests import PageRequest, administrator_required

MEMBERS_SHOWN = 50
MAX_SUGGESTED = 200


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group with the number of its active members and the policies that name it."""

    group: Group
    members: int
    policies: Sequence[Policy]

    @property
    def is_role(self) -> bool:
        return self.group.name in ROLES

    @property
    def text(self) -> Any:
        return ROLE_TEXTS.get(self.group.name, "")


def _rows(_viewer: User, groups: Sequence[Group]) -> list[GroupRow]:
    named = policies_naming_groups()
    return [GroupRow(group, group.members, named.get(group.name, ())) for group in groups]  # type: ignore[attr-defined] # annotated


GROUPS_LIST = register_list(
    ListDefinition[Group](
        name="groups",
        path="/groups/",
        count_text=ngettext_lazy("%(shown)s group", "%(shown)s groups", "count"),
        search_label=gettext_lazy("Search groups"),
        search_hint=gettext_lazy("Name"),
        rows=lambda _viewer, _query: Group.objects.annotate(members=people.member_count()),
        present=_rows,
        search=lambda text: Q(name__icontains=text),
        tab_name="kind",
        tabs={
            "": (gettext_lazy("All"), Q()),
            "groups": (gettext_lazy("Groups"), ~Q(name__in=ROLES)),
            "roles": (gettext_lazy("Roles"), Q(name__in=ROLES)),
        },
        orders={
            "name": SortOrder(gettext_lazy("By name"), "name"),
            "-name": SortOrder(gettext_lazy("By name, backwards"), "-name"),
            "-members": SortOrder(gettext_lazy("Most members first"), "-members"),
            "members": SortOrder(gettext_lazy("Fewest members first"), "members"),
        },
        columns=(
            Column(gettext_lazy("Kind")),
            Column(gettext_lazy("Group"), "name", "-name", down_first=False),
            Column(gettext_lazy("Policies")),
            Column(gettext_lazy("Members"), "members", "-members"),
        ),
        row_template="people/_group.html",
        empty_template="people/_nobody.html",
        csv_columns={
            "name": lambda row: row.group.name,
            "kind": lambda row: "role" if row.is_role else "group",
            "members": lambda row: row.members,
            "policies": lambda row: ", ".join(policy.name for policy in row.policies),
        },
    )
)


class GroupForm(PageForm):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=MAX_GROUP_NAME,
        widget=forms.TextInput({"autocomplete": "off", "dir": "auto"}),
        help_text=gettext_lazy("As policies name it, such as “finance”. It cannot be changed."),
    )
    layout = (
        FormSection(
            "group",
            gettext_lazy("Group"),
            gettext_lazy("Add its members on the next page, then name it in a policy."),
            ("name",),
        ),
    )


class MemberForm(PageForm):
    username = forms.CharField(
        label=gettext_lazy("Username"),
        max_length=MAX_USERNAME,
        widget=forms.TextInput(
            {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false", "list": "candidates"}
        ),
    )

    def add_problems(self, error: Any) -> None:
        self.add_error("username", error.message)


@require_safe
@administrator_required
def group_list(request: PageRequest) -> HttpResponseBase:
    return render_list(request, GROUPS_LIST, "people/groups.html", {"section": "people"})


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def new_group(request: PageRequest) -> HttpResponse:
    form = GroupForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        with refusals_shown(form):
            group = people.create_group(form.cleaned_data["name"], by=request.user)
            messages.success(request, gettext("Group created. Add its members."))
            return redirect("group", group.pk)
    return render_form(
        request, "people/new_group.html", form, section="people", is_fresh=has_fresh_sign_in(request.user)
    )


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def group(request: PageRequest, number: int) -> HttpResponse:
    """Show one group; a POST adds a member."""
    found = _group_or_404(number)
    form = MemberForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        with refusals_shown(form):
            people.change_members(found, add=[form.cleaned_data["username"]], by=request.user)
            messages.success(request, gettext("Added %(name)s.") % {"name": form.cleaned_data["username"]})
            return redirect("group", number)
    return _render_group(request, found, form)


@require_POST
@administrator_required
def change_group(request: PageRequest, number: int) -> HttpResponse:
    """Remove the member that the pressed button names, or delete the group."""
    found = _group_or_404(number)
    do, _sep, username = request.POST.get("do", "").partition(":")
    try:
        if do == "remove":
            people.change_members(found, remove=[username], by=request.user)
            messages.success(request, gettext("Removed %(name)s.") % {"name": username})
        elif do == "delete":
            people.delete_group(found, by=request.user)
            messages.success(request, gettext("Deleted the group %(name)s.") % {"name": found.name})
            return redirect("groups")
    except (Conflict, ParameterError) as error:
        messages.warning(request, error.message)
    except people.SignInTooOld as error:
        messages.warning(request, str(error))
    return redirect("group", number)


def _render_group(request: PageRequest, found: Group, form: MemberForm) -> HttpResponse:
    members = User.objects.filter(in_any_group([found.name]))
    try:
        at = PageParameters(MEMBERS_SHOWN, PageCursor.read(request.GET.get("cursor", "")))
    except ValidationError:
        at = PageParameters(MEMBERS_SHOWN)
    page = paginate(members, order="username", at=at)
    rows: list[PersonRow] = person_rows(page.rows)
    active = members.filter(is_active=True).count()
    is_role = found.name in ROLES
    candidates = User.objects.filter(is_active=True).exclude(groups=found).order_by("username")
    shown = {
        "section": "people",
        "row": GroupRow(found, active, policies_naming_groups().get(found.name, ())),
        "label": ROLE_LABELS.get(found.name, found.name),
        "rows": rows,
        "form": form,
        "candidates": [] if is_role else list(candidates[:MAX_SUGGESTED]),
        "older": page.next.text() if page.next else "",
        "is_fresh": has_fresh_sign_in(request.user),
    }
    return render(request, "people/group.html", shown, status=422 if form.errors else 200)


def _group_or_404(number: int) -> Group:
    found = Group.objects.filter(pk=number).first()
    if found is None:
        raise Http404
    return found
