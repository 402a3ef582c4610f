"""Pages of people for administrators: the list, inviting, and one person with roles, groups and what can be ended."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.db.models import DateTimeField, Q, Value
from django.db.models.functions import Coalesce
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.models import Policy
from approvals.policies.group_use import policies_naming_groups
from catalog.access import people
from catalog.access.link_mails import LINK, MAIL, can_mail, check_can_mail, mail_link
from catalog.access.people import (
    ACTIVE,
    COLUMNS,
    DEACTIVATED,
    INVITED,
    MAX_EMAIL,
    MAX_NAME,
    MAX_USERNAME,
    NewLink,
    held_roles,
    other_groups,
)
from catalog.access.roles import (
    ADMINISTRATOR,
    OPERATOR,
    REVIEWER,
    ROLES,
    VIEWER,
    has_fresh_sign_in,
    in_any_group,
    prefetch_groups,
    user_display_name,
)
from catalog.access.second_factors import requires_second_factor, with_second_factor
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, digest
from catalog.errors import Conflict
from catalog.models import AccountLink, ApiToken
from catalog.ui.labels import Badge
from catalog.ui.list_views import render_list
from catalog.ui.lists import (
    MAX_CHOICES,
    Choice,
    Column,
    ListDefinition,
    ListFilter,
    SortOrder,
    column_choices,
    fixed_choices,
    register_list,
)
from catalog.ui.page_forms import CardSelect, CardSelectMultiple, CardText, FormSection, PageForm, render_form
from catalog.ui.requests import PageRequest, administrator_required, server_address

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

ROLE_TEXTS: Mapping[str, "StrOrPromise"] = {
    VIEWER: gettext_lazy("Reads plans, calls, requests and tools. Changes nothing."),
    OPERATOR: gettext_lazy("Calls tools, makes and controls plans, connects agents."),
    REVIEWER: gettext_lazy("Reads everything that agents do and decides requests, never their own."),
    ADMINISTRATOR: gettext_lazy(
        "All that other roles may, and manages people, tools, sources and policies. Reads the audit log."
    ),
}
ROLE_LABELS: Mapping[str, "StrOrPromise"] = {
    VIEWER: gettext_lazy("Viewer"),
    OPERATOR: gettext_lazy("Operator"),
    REVIEWER: gettext_lazy("Reviewer"),
    ADMINISTRATOR: gettext_lazy("Administrator"),
}
ROLE_ICONS = {VIEWER: "search", OPERATOR: "play", REVIEWER: "approve", ADMINISTRATOR: "settings"}
STATE_BADGES: Mapping[str, Badge] = {
    ACTIVE: Badge(gettext_lazy("Active"), "ok", "ok"),
    INVITED: Badge(gettext_lazy("Invited"), "pending", "warn"),
    DEACTIVATED: Badge(gettext_lazy("Deactivated"), "stop", "idle"),
}
EXPIRED_INVITATION = Badge(gettext_lazy("Invitation expired"), "expired", "warn")
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PersonRow:
    """A person with the open link, if there is one, and whether they have a second factor."""

    person: User
    link: AccountLink | None
    has_second_factor: bool = False

    @property
    def state(self) -> str:
        return people.state_of(self.person, self.link)

    @property
    def badge(self) -> Badge:
        has_expired = self.link is not None and self.link.expires_at <= clock.now()
        return EXPIRED_INVITATION if self.state == INVITED and has_expired else STATE_BADGES[self.state]

    @property
    def name(self) -> str:
        return user_display_name(self.person)

    @property
    def roles(self) -> list["StrOrPromise"]:
        return [ROLE_LABELS[name] for name in held_roles(self.person)]

    @property
    def groups(self) -> list[str]:
        return other_groups(self.person)


def person_rows(found: Sequence[User]) -> list[PersonRow]:
    """Return rows with their groups, open links and second factors, in three queries."""
    prefetch_groups(found)
    keys = [person.pk for person in found]
    links, secured = people.open_links(keys), with_second_factor(keys)
    return [PersonRow(person, links.get(person.pk), person.pk in secured) for person in found]


def _matches(text: str) -> Q:
    condition = Q()
    for word in text.split():
        columns = ("username", "first_name", "last_name", "email")
        condition &= Q(*((f"{column}__icontains", word) for column in columns), _connector=Q.OR)
    return condition


PEOPLE_LIST = register_list(
    ListDefinition[User](
        name="people",
        path="/people/",
        count_text=ngettext_lazy("%(shown)s person", "%(shown)s people", "count"),
        search_label=gettext_lazy("Search people"),
        search_hint=gettext_lazy("Name, username, mail address"),
        rows=lambda _viewer, _query: User.objects.annotate(
            signed_in_at=Coalesce("last_login", Value(LONG_AGO), output_field=DateTimeField())
        ),
        present=lambda _viewer, found: person_rows(found),
        search=_matches,
        tab_name="state",
        tabs={
            "": (gettext_lazy("All"), Q()),
            ACTIVE: (gettext_lazy("Active"), people.state_condition(ACTIVE)),
            INVITED: (gettext_lazy("Invited"), people.state_condition(INVITED)),
            DEACTIVATED: (gettext_lazy("Deactivated"), people.state_condition(DEACTIVATED)),
        },
        filters=(
            ListFilter(
                name="role",
                label=gettext_lazy("Role"),
                offer=fixed_choices([Choice(name, ROLE_LABELS[name], ROLE_ICONS[name]) for name in ROLES]),
                condition=in_any_group,
            ),
            ListFilter(
                name="group",
                label=gettext_lazy("Group"),
                offer=lambda _viewer, chosen: column_choices(Group.objects.exclude(name__in=ROLES), "name", chosen),
                condition=in_any_group,
            ),
        ),
        orders={
            "username": SortOrder(gettext_lazy("By username"), "username"),
            "-username": SortOrder(gettext_lazy("By username, backwards"), "-username"),
            "-signed-in": SortOrder(gettext_lazy("Last sign-in first"), "-signed_in_at"),
            "signed-in": SortOrder(gettext_lazy("Longest without sign-in first"), "signed_in_at"),
        },
        columns=(
            Column(gettext_lazy("Status")),
            Column(gettext_lazy("Person"), "username", "-username", down_first=False),
            Column(gettext_lazy("Roles")),
            Column(gettext_lazy("Groups")),
            Column(gettext_lazy("Second factor")),
            Column(gettext_lazy("Last sign-in"), "signed-in", "-signed-in"),
        ),
        row_template="people/_person.html",
        empty_template="people/_nobody.html",
        csv_columns={
            "username": lambda row: row.person.username,
            "name": lambda row: row.person.get_full_name(),
            "email": lambda row: row.person.email,
            "state": lambda row: row.state,
            "roles": lambda row: ", ".join(held_roles(row.person)),
            "groups": lambda row: ", ".join(row.groups),
            "second_factor": lambda row: "yes" if row.has_second_factor else "no",
            "last_sign_in": lambda row: row.person.last_login,
            "created": lambda row: row.person.date_joined,
        },
    )
)


class PersonForm(PageForm):
    """Name, mail address, roles and groups of a person. Groups beyond the offered ones stay as they are."""

    first_name = forms.CharField(
        label=gettext_lazy("First name"),
        required=False,
        max_length=MAX_NAME,
        widget=forms.TextInput({"autocomplete": "off", "dir": "auto"}),
    )
    last_name = forms.CharField(
        label=gettext_lazy("Last name"),
        required=False,
        max_length=MAX_NAME,
        widget=forms.TextInput({"autocomplete": "off", "dir": "auto"}),
        help_text=gettext_lazy("Without a name, the username is shown."),
    )
    email = forms.CharField(
        label=gettext_lazy("Mail address"),
        required=False,
        max_length=MAX_EMAIL,
        widget=forms.EmailInput({"autocomplete": "off"}),
        help_text=gettext_lazy("For links to set a password, and for notifications."),
    )
    roles = forms.MultipleChoiceField(
        label=gettext_lazy("Roles"),
        required=False,
        choices=[(name, ROLE_LABELS[name]) for name in ROLES],
        widget=CardSelectMultiple({name: CardText(text, ROLE_ICONS[name]) for name, text in ROLE_TEXTS.items()}),
        help_text=gettext_lazy("Without a role, a person sees only their own plans and requests."),
    )
    groups = forms.MultipleChoiceField(
        label=gettext_lazy("Groups"),
        required=False,
        widget=CardSelectMultiple(),
        help_text=gettext_lazy("Policies name groups of people who decide."),
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)
    layout: ClassVar[Sequence[FormSection]] = (
        FormSection(
            "who",
            gettext_lazy("Person"),
            gettext_lazy("How others see and reach this person."),
            ("first_name", "last_name", "email"),
        ),
        FormSection("may", gettext_lazy("Roles"), gettext_lazy("What the person may do."), ("roles",)),
        FormSection("in", gettext_lazy("Groups"), gettext_lazy("Whose requests the person may decide."), ("groups",)),
    )

    def __init__(self, data: Any = None, *, person: User | None = None) -> None:
        self.person, self.stored = person, _stored(person) if person else {}
        super().__init__(data, initial={**self.stored, "seen": _state_digest(self.stored)})
        offered = _offered_groups(self.stored.get("groups", ()))
        if not offered:
            del self.fields["groups"]
            return
        named = policies_naming_groups()
        self.fields["groups"].choices = [(name, name) for name in offered]  # type: ignore[attr-defined]
        self.fields["groups"].widget.cards = {name: CardText(_named_by(named.get(name, ()))) for name in offered}

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of `people.change_person`."""
        data = self.cleaned_data
        kept = set(self.stored.get("groups", ())) - {
            name for name, _ in getattr(self.fields.get("groups"), "choices", ())
        }
        groups = [*data.get("groups", ()), *sorted(kept)]
        return {**{name: data[name] for name in COLUMNS}, "roles": data["roles"], "groups": groups}

    def clean_seen(self) -> str:
        if self.person is not None and self.cleaned_data["seen"] != _state_digest(self.stored):
            raise forms.ValidationError(
                gettext(
                    "Someone has changed this person meanwhile. Compare the fields with what is stored now, then save."
                )
            )
        return str(self.cleaned_data["seen"])

    def clean(self) -> dict[str, Any]:
        """After a change by someone else, show at each field that differs what is stored now."""
        if self.has_error("seen"):
            for name, value in self.stored.items():
                typed = self.cleaned_data.get(name, value)
                if name in self.fields and (
                    sorted(typed) != sorted(value) if isinstance(value, list) else typed != value
                ):
                    self.add_error(name, gettext("Stored now: %(value)s") % {"value": self._in_words(name)})
        return self.cleaned_data

    def _in_words(self, name: str) -> str:
        value = self.stored[name]
        words = [str(ROLE_LABELS.get(each, each)) for each in value] if isinstance(value, list) else [value]
        return ", ".join(words) if any(words) else gettext("nothing")

    @property
    def seen_now(self) -> str:
        """The digest of what is stored: a form that is shown again may be saved over the changes that it shows."""
        return _state_digest(self.stored)


class InvitationForm(PersonForm):
    username = forms.CharField(
        label=gettext_lazy("Username"),
        max_length=MAX_USERNAME,
        widget=forms.TextInput({"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "For signing in, and how policies and the audit log name the person. It cannot be changed."
        ),
    )
    delivery = forms.ChoiceField(
        label=gettext_lazy("The link to set a password"),
        choices=[(MAIL, gettext_lazy("Send it by mail")), (LINK, gettext_lazy("Hand it over yourself"))],
        widget=CardSelect(),
    )
    layout: ClassVar[Sequence[FormSection]] = (
        FormSection(
            "who",
            gettext_lazy("Person"),
            gettext_lazy("How others see and reach this person."),
            ("username", "first_name", "last_name", "email"),
        ),
        *PersonForm.layout[1:],
        FormSection(
            "link",
            gettext_lazy("Invitation"),
            gettext_lazy("The person opens a link and sets a password. It works once, for 7 days."),
            ("delivery",),
        ),
    )
    field_order = ("username", "first_name", "last_name", "email", "roles", "groups", "delivery", "seen")

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        by_mail = settings.TOOLGATE_SENDS_MAIL
        self.initial["delivery"] = MAIL if by_mail else LINK
        self.fields["delivery"].widget.cards = {
            MAIL: CardText(
                gettext("To the address above."),
                "reply",
                refusal="" if by_mail else gettext("No mail server is set up (TOOLGATE_EMAIL_URL)."),
            ),
            LINK: CardText(gettext("It is shown once, on the next page."), "link"),
        }


def _stored(person: User) -> dict[str, Any]:
    groups = sorted(group.name for group in person.groups.all())
    return {
        **{name: getattr(person, name) for name in COLUMNS},
        "roles": held_roles(person),
        "groups": [name for name in groups if name not in ROLES],
    }


def _state_digest(stored: Mapping[str, Any]) -> str:
    return digest(canonical_text(dict(stored)))


def _offered_groups(chosen: Sequence[str]) -> list[str]:
    return [choice.value for choice in column_choices(Group.objects.exclude(name__in=ROLES), "name", chosen)][
        :MAX_CHOICES
    ]


def _named_by(policies: Sequence[Policy]) -> str:
    return (
        gettext("Named by %(policies)s") % {"policies": ", ".join(each.name for each in policies)} if policies else ""
    )


@contextmanager
def refusals_shown(form: PageForm) -> Iterator[None]:
    """Show at the form what a service refuses in the body, a sign-in that is too old included."""
    try:
        with form.refusals_shown():
            yield
    except people.SignInTooOld as error:
        form.add_error(None, str(error))


@require_safe
@administrator_required
def people_list(request: PageRequest) -> HttpResponseBase:
    return render_list(request, PEOPLE_LIST, "people/people.html", {"section": "people"})


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def new_person(request: PageRequest) -> HttpResponse:
    """Show the form of an invitation; a POST creates the person and mails or shows the link."""
    form = InvitationForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        with refusals_shown(form):
            by_mail = form.cleaned_data["delivery"] == MAIL
            if by_mail:
                check_can_mail(form.cleaned_data["email"])
            username = form.cleaned_data["username"]
            _person, link = people.create_person(username=username, **form.changes, by=request.user)
            if link is not None:
                return deliver(request, link, by_mail=by_mail)
    is_fresh = has_fresh_sign_in(request.user)
    return render_form(request, "people/new.html", form, section="people", is_fresh=is_fresh)


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_required
def person(request: PageRequest, number: int) -> HttpResponse:
    """Show one person; a POST changes name, mail address, roles and groups."""
    if request.method != "POST":
        found = person_or_404(number)
        return _render_person(request, found, PersonForm(person=found))
    with people.people_locked(request.user):  # nobody changes the person after `seen` was compared
        found = person_or_404(number)
        form = PersonForm(request.POST, person=found)
        if form.is_valid():
            with refusals_shown(form):
                people.change_person(found, form.changes, by=request.user)
                messages.success(request, gettext("Saved."))
                return redirect("person", number)
    return _render_person(request, found, form)


@require_POST
@administrator_required
def change_access(request: PageRequest, number: int) -> HttpResponse:
    """Deactivate, activate or reset a person, send an invitation again or withdraw it, as the pressed button says."""
    found = person_or_404(number)
    do, _sep, how = request.POST.get("do", "").partition(":")
    try:
        if do == "deactivate":
            people.deactivate_person(found, by=request.user)
            messages.success(request, gettext("Deactivated: %(name)s.") % {"name": user_display_name(found)})
        elif do == "withdraw":
            people.withdraw_invitation(found, by=request.user)
            messages.success(request, gettext("Invitation withdrawn: %(name)s.") % {"name": user_display_name(found)})
            return redirect("people")
        elif do in ("activate", "reset"):
            act = people.activate_person if do == "activate" else people.reset_person
            return deliver(request, act(found, by=request.user), by_mail=how == MAIL and can_mail(found))
    except Conflict as error:
        messages.warning(request, error.message)
    except people.SignInTooOld as error:
        messages.warning(request, str(error))
    return redirect("person", number)


def deliver(request: PageRequest, link: NewLink, *, by_mail: bool) -> HttpResponse:
    """Mail a link and go to the person's page; show the link if it is handed over, or if the mail fails."""
    failure = mail_link(link, server=server_address(request)) if by_mail else ""
    if by_mail and not failure:
        messages.success(request, gettext("The link was sent to %(address)s.") % {"address": link.link.person.email})
        return redirect("person", link.link.person_id)
    shown = {
        "section": "people",
        "link": link.link,
        "address": link.address(server_address(request)),
        "failure": failure,
        "name": user_display_name(link.link.person),
    }
    return render(request, "people/link.html", shown, status=201)


def _render_person(request: PageRequest, found: User, form: PersonForm) -> HttpResponse:
    [row] = person_rows([found])
    named = policies_naming_groups()
    groups = [*held_roles(found), *row.groups]
    shown = {
        "section": "people",
        "row": row,
        "form": form,
        "can_mail": can_mail(found),
        "is_fresh": has_fresh_sign_in(request.user),
        "is_self": found.pk == request.user.pk,
        "lacks_factor": not row.has_second_factor and requires_second_factor(found),
        "tokens": ApiToken.objects.filter(user=found, revoked_at=None, expires_at__gt=clock.now()).count(),
        "policies": [(name, named[name]) for name in groups if name in named],
    }
    return render(request, "people/person.html", shown, status=422 if form.errors else 200)


def person_or_404(number: int) -> User:
    found = User.objects.filter(pk=number).first()
    if found is None:
        raise Http404
    return found
