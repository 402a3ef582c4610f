"""REST endpoints of people and groups, for administrators: read in a session or with `audit:read`.

`catalog.access.people` checks each change: by a session that began within the last hour, never by a token.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.policies.group_use import policies_naming_groups
from catalog.access import people
from catalog.access.link_mails import LINK, MAIL, check_can_mail, mail_link
from catalog.access.people import MAX_EMAIL, MAX_GROUP_NAME, MAX_MEMBERS, MAX_NAME, MAX_USERNAME, NewLink
from catalog.access.roles import ROLES, in_any_group
from catalog.access.second_factors import with_second_factor
from catalog.models import AccountLink
from catalog.rest.idempotency import IDEMPOTENCY_KEY, record_done, respond_once
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.serializers import (
    PageQuery,
    StrictBooleanField,
    StrictChoiceField,
    StrictSerializer,
    StrictTextField,
)
from catalog.rest.views import Endpoint

NONE = "none"
DELIVERIES = (MAIL, LINK, NONE)
LINK_KINDS = AccountLink.Kind.values
MAX_GROUPS = 500
READ_SCOPES = ["audit:read"]


class PeopleQuery(PageQuery):
    state = serializers.ChoiceField(choices=people.STATES, required=False)
    group = serializers.CharField(required=False, max_length=MAX_GROUP_NAME, help_text="The name of a role or group.")


class RolesField(serializers.ListField):
    child = StrictChoiceField(choices=ROLES)

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=len(ROLES), **options)


class GroupsField(serializers.ListField):
    child = StrictTextField(max_length=MAX_GROUP_NAME)

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=MAX_GROUPS, help_text="Names of groups other than roles.", **options)


class DeliveryField(StrictChoiceField):
    def __init__(self, choices: Sequence[str]) -> None:
        super().__init__(choices=choices, help_text="`mail` sends the link, `link` returns it, once.")


class PersonColumns(StrictSerializer):
    first_name = StrictTextField(required=False, allow_blank=True, max_length=MAX_NAME)
    last_name = StrictTextField(required=False, allow_blank=True, max_length=MAX_NAME)
    email = StrictTextField(required=False, allow_blank=True, max_length=MAX_EMAIL)


class PersonBody(PersonColumns):
    """A person to be created. With `delivery: none` the account is active at once and has no password."""

    username = StrictTextField(max_length=MAX_USERNAME)
    roles = RolesField(default=list)
    groups = GroupsField(default=list)
    delivery = DeliveryField(DELIVERIES)


class PersonChangeBody(PersonColumns):
    """Changes to a person; fields that are left out keep their values. `roles` and `groups` are all of them."""

    roles = RolesField(required=False)
    groups = GroupsField(required=False)
    active = StrictBooleanField(required=False, help_text="False deactivates, true activates with a link.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError("Name at least one field to change.")
        return attrs


class ResetBody(StrictSerializer):
    """The way of the link to the person."""

    delivery = DeliveryField((MAIL, LINK))


class OpenLinkSerializer(serializers.Serializer[Any]):
    """A link with which a person may set a password; it has expired after `expires_at`."""

    kind = serializers.ChoiceField(choices=LINK_KINDS)
    sent_to = serializers.CharField(help_text="The mail address; empty if the link was handed over.")
    made_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


class PersonSerializer(serializers.Serializer[Any]):
    """A person. `roles` are those that a person has or, if the account is not active, will have."""

    username = serializers.CharField()
    first_name = serializers.CharField()
    last_name = serializers.CharField()
    email = serializers.CharField()
    state = serializers.SerializerMethodField()
    roles = serializers.SerializerMethodField()
    groups = serializers.SerializerMethodField()
    superuser = serializers.BooleanField(source="is_superuser")
    second_factor = serializers.SerializerMethodField()
    open_link = serializers.SerializerMethodField()
    last_sign_in = serializers.DateTimeField(source="last_login", allow_null=True)
    created_at = serializers.DateTimeField(source="date_joined")

    def _link(self, person: User) -> AccountLink | None:
        link: AccountLink | None = self.context["links"].get(person.pk)
        return link

    @extend_schema_field(serializers.ChoiceField(choices=people.STATES))
    def get_state(self, person: User) -> str:
        """Return the state."""
        return people.state_of(person, self._link(person))

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=ROLES)))
    def get_roles(self, person: User) -> list[str]:
        """Return the roles."""
        return people.held_roles(person)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_groups(self, person: User) -> list[str]:
        """Return the groups other than roles."""
        return people.other_groups(person)

    def get_second_factor(self, person: User) -> bool:
        """Return whether the person has a second factor."""
        return person.pk in self.context["secured"]

    @extend_schema_field(OpenLinkSerializer(allow_null=True))
    def get_open_link(self, person: User) -> Any:
        """Return the link that is open, or None."""
        link = self._link(person)
        return OpenLinkSerializer(link).data if link is not None else None


class LinkedPersonSerializer(PersonSerializer):
    """A person for whom a link was made. A repeat with the same Idempotency-Key lacks `link`."""

    link = serializers.CharField(required=False, help_text="The link, unless it was mailed. Shown only here.")
    mail_error = serializers.CharField(required=False, help_text="Why the mail was not sent; `link` is there then.")


class PersonEndpoint(Endpoint):
    def person(self, username: str) -> User:
        """Return a person. Raises Http404."""
        found = User.objects.filter(username=username).first() if "\x00" not in username else None
        if found is None:
            raise Http404
        return found

    def seeing(self, found: Sequence[User]) -> dict[str, Any]:
        """Return the serializer context for these people."""
        keys = [person.pk for person in found]
        return {"links": people.open_links(keys), "secured": with_second_factor(keys)}

    def detail_response(self, username: str, status: int = 200, link: NewLink | None = None, how: str = "") -> Response:
        """Respond with a person; mail `link` if `how` is `mail`, or else show it."""
        failure = mail_link(link) if link is not None and how == MAIL else ""
        person = self.person(username)
        response = Response(PersonSerializer(person, context=self.seeing([person])).data, status)
        if link is not None and (how != MAIL or failure):
            response.data["link"] = link.address()
        if failure:
            response.data["mail_error"] = failure
        return response


class PersonList(PersonEndpoint):
    required_scopes: ClassVar = {"GET": READ_SCOPES}

    @extend_schema("people_list", parameters=[PeopleQuery], responses=page_schema(PersonSerializer))
    def get(self, request: Request) -> Response:
        """List people by username."""
        query, at = self.page_query(PeopleQuery)
        found = User.objects.prefetch_related("groups")
        if "state" in query:
            found = found.filter(people.state_condition(query["state"]))
        if "group" in query:
            found = found.filter(in_any_group([query["group"]]))
        page = paginate(found, order="username", at=at)
        context = self.seeing(page.rows)
        return paginated_response(request, page, lambda person: PersonSerializer(person, context=context).data)

    @extend_schema(
        "people_create", parameters=[IDEMPOTENCY_KEY], request=PersonBody, responses={201: LinkedPersonSerializer}
    )
    def post(self, request: Request) -> Response:
        """Create a person, and invite them by a link to set a password. Requires a session of the last hour."""
        people.check_may_change_people(self.user)

        def create() -> Response:
            body = self.body(PersonBody)
            how = body.pop("delivery")
            if how == MAIL:
                check_can_mail(body.get("email", ""))
            with transaction.atomic():
                person, link = people.create_person(**body, invited=how != NONE, by=self.user)
                record_done(person.get_username())
            return self.detail_response(person.get_username(), 201, link, how)

        return respond_once(request, create, lambda ref: self.detail_response(ref, 201), unstored=["link"])


class PersonDetail(PersonEndpoint):
    required_scopes: ClassVar = {"GET": READ_SCOPES}

    @extend_schema("people_read", responses=PersonSerializer)
    def get(self, request: Request, username: str) -> Response:
        """Show one person."""
        return self.detail_response(username)

    @extend_schema("people_change", request=PersonChangeBody, responses=LinkedPersonSerializer)
    def patch(self, request: Request, username: str) -> Response:
        """Change a person, or deactivate or activate the account. Requires a session of the last hour.

        409 if no administrator could sign in any more.
        """
        people.check_may_change_people(self.user)
        person, body = self.person(username), self.body(PersonChangeBody)
        active, link = body.pop("active", None), None
        with transaction.atomic():
            if body:
                people.change_person(person, body, by=self.user)
            if active is True:
                link = people.activate_person(person, by=self.user)
            elif active is False:
                people.deactivate_person(person, by=self.user)
        return self.detail_response(username, link=link)

    @extend_schema("people_withdraw", responses={200: PersonSerializer})
    def delete(self, request: Request, username: str) -> Response:
        """Withdraw an invitation that was not accepted: the person is removed. 409 for everyone else."""
        people.check_may_change_people(self.user)
        response = self.detail_response(username)
        people.withdraw_invitation(self.person(username), by=self.user)
        return response


class PersonReset(PersonEndpoint):
    @extend_schema("people_reset", parameters=[IDEMPOTENCY_KEY], request=ResetBody, responses=LinkedPersonSerializer)
    def post(self, request: Request, username: str) -> Response:
        """End a person's sessions and password, and make a link to set a new one; or make an invitation anew."""
        people.check_may_change_people(self.user)

        def reset() -> Response:
            person, how = self.person(username), self.body(ResetBody)["delivery"]
            if how == MAIL:
                check_can_mail(person.email)
            with transaction.atomic():
                link = people.reset_person(person, by=self.user)
                record_done(username)
            return self.detail_response(username, link=link, how=how)

        return respond_once(request, reset, self.detail_response, unstored=["link"])


class GroupBody(StrictSerializer):
    """A new group."""

    name = StrictTextField(max_length=MAX_GROUP_NAME)
    members = serializers.ListField(
        child=StrictTextField(max_length=MAX_USERNAME), default=list, max_length=MAX_MEMBERS
    )


class GroupChangeBody(StrictSerializer):
    """People who join and leave a group, by username."""

    add = serializers.ListField(child=StrictTextField(max_length=MAX_USERNAME), default=list, max_length=MAX_MEMBERS)
    remove = serializers.ListField(child=StrictTextField(max_length=MAX_USERNAME), default=list, max_length=MAX_MEMBERS)


class NamingPolicySerializer(serializers.Serializer[Any]):
    """A policy that names a group."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    enabled = serializers.BooleanField()


class GroupSerializer(serializers.Serializer[Any]):
    """A role or a group. Its members are `people/?group=NAME`."""

    name = serializers.CharField()
    role = serializers.SerializerMethodField()
    members = serializers.SerializerMethodField(help_text="Number of active members.")
    policies = serializers.SerializerMethodField()

    def get_role(self, group: Group) -> bool:
        """Return whether the group is a role."""
        return group.name in ROLES

    def get_members(self, group: Group) -> int:
        """Return the number of active members."""
        return int(group.members)  # type: ignore[attr-defined] # annotated by GroupEndpoint

    @extend_schema_field(NamingPolicySerializer(many=True))
    def get_policies(self, group: Group) -> Any:
        """Return the policies that name the group."""
        return NamingPolicySerializer(self.context["named"].get(group.name, ()), many=True).data


class GroupEndpoint(Endpoint):
    def groups(self) -> Any:
        return Group.objects.annotate(members=people.member_count())

    def group(self, name: str) -> Group:
        """Return a group. Raises Http404."""
        found: Group | None = self.groups().filter(name=name).first() if "\x00" not in name else None
        if found is None:
            raise Http404
        return found

    def detail_response(self, name: str, status: int = 200) -> Response:
        context = {"named": policies_naming_groups()}
        return Response(GroupSerializer(self.group(name), context=context).data, status)


class GroupList(GroupEndpoint):
    required_scopes: ClassVar = {"GET": READ_SCOPES}

    @extend_schema("groups_list", parameters=[PageQuery], responses=page_schema(GroupSerializer))
    def get(self, request: Request) -> Response:
        """List roles and groups by name, with the policies that name them."""
        _query, at = self.page_query(PageQuery)
        page = paginate(self.groups(), order="name", at=at)
        context = {"named": policies_naming_groups()}
        return paginated_response(request, page, lambda group: GroupSerializer(group, context=context).data)

    @extend_schema("groups_create", parameters=[IDEMPOTENCY_KEY], request=GroupBody, responses={201: GroupSerializer})
    def post(self, request: Request) -> Response:
        """Create a group. Requires a session of the last hour."""
        people.check_may_change_people(self.user)

        def create() -> Response:
            with transaction.atomic():
                group = people.create_group(**self.body(GroupBody), by=self.user)
                record_done(group.name)
            return self.detail_response(group.name, 201)

        return respond_once(request, create, lambda ref: self.detail_response(ref, 201))


class GroupDetail(GroupEndpoint):
    required_scopes: ClassVar = {"GET": READ_SCOPES}

    @extend_schema("groups_read", responses=GroupSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Show one role or group."""
        return self.detail_response(name)

    @extend_schema("groups_change", request=GroupChangeBody, responses=GroupSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """Add people to a group and remove others; 409 for roles, which are changed at each person."""
        people.check_may_change_people(self.user)
        people.change_members(self.group(name), **self.body(GroupChangeBody), by=self.user)
        return self.detail_response(name)

    @extend_schema("groups_delete", responses={200: GroupSerializer})
    def delete(self, request: Request, name: str) -> Response:
        """Delete a group; 409 for roles, and while a policy or an open request names it."""
        people.check_may_change_people(self.user)
        response = self.detail_response(name)
        people.delete_group(self.group(name), by=self.user)
        return response
