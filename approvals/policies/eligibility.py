"""Eligibility: users who may decide a request, and delegation. Never writes.

Requesters and editors of a call may not decide it, not even superusers.
"""

from collections.abc import Collection, Iterable
from itertools import takewhile
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from approvals.audit.accounts import groups_held_long_enough
from approvals.models import ApprovalRequest, Delegation, Review, Round
from approvals.policies.rulebook import Rule, rule_for
from catalog.access.roles import (
    ADMINISTRATOR,
    REVIEWER,
    NotAllowed,
    agent_token_of,
    groups_of,
    in_any_group,
    prefetch_groups,
    user_display_name,
)
from catalog.models import CallRequester


def counting_groups(rule: Rule, user: User) -> frozenset[str]:
    """Return the groups of the rule in which a user has been a member for long enough to count.

    Administrators also count as reviewers, from the time they became administrators.
    """
    stage_groups = frozenset(stage.group for stage in rule.stages)
    all_groups = stage_groups | {rule.escalated_to} if rule.escalated_to else stage_groups
    groups = groups_of(user)
    if user.is_active and user.is_superuser:
        groups |= {ADMINISTRATOR}
    held = groups_held_long_enough(user, groups & (all_groups | {ADMINISTRATOR}), rule.min_role_age_seconds)
    if ADMINISTRATOR in held:
        held |= {REVIEWER}
    return stage_groups if rule.escalated_to in held else held & all_groups


MAX_CANDIDATES = 200
"""Maximum number of users of one group that are checked as possible deciders of a request."""


def may_decide(request: ApprovalRequest, user: User, rule: Rule | None = None) -> str | None:
    """Return None if the user may decide the request, otherwise a text with the reason and the users who may.

    If given, `rule` is used instead of the request's own. A delegate may decide only while the delegating user may.
    """
    rule = rule or rule_for(request)
    if (why_not := _role_objection(user, rule)) is not None:
        return why_not
    if not _has_deciding_role(user, rule) and _delegator(request, user, rule) is None:
        return _membership_objection(rule, user)
    return _four_eyes_objection(request, user, rule)


def check_may_decide(request: ApprovalRequest, by: User) -> None:
    """Raise NotAllowed with the reason if this person may not decide the request."""
    why_not = may_decide(request, by)
    if why_not is not None:
        raise NotAllowed(why_not)


def may_revoke_approval(request: ApprovalRequest, user: User) -> str | None:
    """Return None if the user may revoke the approval, otherwise the reason. Requesters and editors may too."""
    rule = rule_for(request)
    if (why_not := _role_objection(user, rule)) is not None:
        return why_not
    if _has_deciding_role(user, rule) or _delegator(request, user, rule) is not None:
        return None
    return _membership_objection(rule, user)


def may_pre_approve(rule: Rule, user: User, askers: Collection[int]) -> str | None:
    """Return None if the user may pre-approve calls requested by `askers` (primary keys of users), else the reason."""
    if (why_not := _role_objection(user, rule)) is not None:
        return why_not
    if not _has_deciding_role(user, rule):
        return _membership_objection(rule, user)
    return _requester_objection(rule) if not rule.allow_self_review and user.pk in askers else None


def _role_objection(user: User, rule: Rule) -> str | None:
    if agent_token_of(user) is not None:
        return f"Agent tokens cannot decide requests. {deciders_sentence(rule)}"
    return None if user.is_active else f"This account is disabled. {deciders_sentence(rule)}"


def delegator_of(request: ApprovalRequest, user: User) -> "User | None":
    """Return the user on whose behalf this user decides; None if the user needs no delegation or has none."""
    rule = rule_for(request)
    return None if _has_deciding_role(user, rule) else _delegator(request, user, rule)


def editor_counts(request: ApprovalRequest, user: User) -> bool:
    """Return True if the user's approval counts in the current round; it may not if the user edited the round."""
    round_ = _rounds_newest_first(request)[0]
    return round_.editor_id != user.pk or _editor_may_approve(round_, rule_for(request))


def is_input_author(request: ApprovalRequest, user: User) -> bool:
    """Return True if the user changed or answered an earlier step and this call uses values of that step."""
    return user.pk in request.input_authors


def review_audit_details(review: Review) -> dict[str, Any]:
    """Return audit details of a review: delegation, self-review, and authorship of the call's input."""
    details: dict[str, Any] = {"on_behalf_of": user_display_name(review.on_behalf_of)} if review.on_behalf_of else {}
    if is_input_author(review.request, review.person):
        details["input_author"] = True
    return details | {"self_review": True} if is_requester(review.request, review.person) else details


def is_requester(request: ApprovalRequest, user: User) -> bool:
    requesters = {each.user_id for each in request.call.requesters.all()}
    return user.pk == request.call.requested_by_id or user.pk in requesters


def deciders_sentence(rule: Rule) -> str:
    exception = "" if rule.allow_self_review else " other than the requester"
    groups = dict.fromkeys([*rule.groups, *([ADMINISTRATOR] if REVIEWER in rule.groups else [])])
    return f"Only members of {' or '.join(groups)}{exception} may decide."


def candidate_reviewers(people: QuerySet[User], request: ApprovalRequest) -> QuerySet[User]:
    """Return people who can probably decide, with duplicates; `may_decide` must still check each user."""
    rule = rule_for(request)
    delegates = Delegation.objects.filter(request=request).values("to")
    members = people.filter(Q(groups__name__in=rule.groups) | Q(pk__in=delegates))
    if rule.allow_self_review:
        return members
    return members.exclude(pk__in=CallRequester.objects.filter(call=request.call_id).values("user_id"))


def other_deciders(request: ApprovalRequest, user: User) -> list[User]:
    """Return the other users who may decide a request, sorted by name."""
    rule = rule_for(request)
    return [each for each in people_named([rule]) if each.pk != user.pk and may_decide(request, each, rule) is None]


def people_named(rules: Iterable[Rule]) -> list[User]:
    """Return the active members of the groups of these rules, sorted by name, with their groups loaded: two queries.

    Of a large group these are the first MAX_CANDIDATES, so that it hides no member of another one. `may_decide` and
    `may_pre_approve` must still judge each of them.
    """
    groups = {group for rule in rules for group in rule.groups}
    if not groups:
        return []
    by_name = Window(RowNumber(), partition_by=F("group"), order_by=["user__first_name", "user__username"])
    members = User.groups.through.objects.filter(group__name__in=[*groups, ADMINISTRATOR], user__is_active=True)
    first = members.annotate(place=by_name).filter(Q(place__lte=MAX_CANDIDATES)).values("user")
    people = get_user_model().objects.filter(Q(pk__in=first) | Q(is_superuser=True), is_active=True)
    some = list(people.order_by("first_name", "username"))
    prefetch_groups(some)
    return some


def eligible_members(rule: Rule, *, without: Collection[int]) -> list[User]:
    """Return enough people who count for the stages of a rule to tell if it can be met, leaving out those `without`.

    Of each stage's group these are as many as the rule needs in all, if there are so many: more people of one group
    fill no further stage. Reads in batches until then, since members may be in the group for too short a time.
    """
    found: dict[int, User] = {}
    for group in {stage.group for stage in rule.stages}:
        names = [group, ADMINISTRATOR] if group == REVIEWER else [group]
        people = get_user_model().objects.filter(in_any_group(names), is_active=True).exclude(pk__in=without)
        count, after = 0, 0
        while count < rule.quorum and (batch := list(people.filter(pk__gt=after).order_by("pk")[:MAX_CANDIDATES])):
            prefetch_groups(batch)
            counting = [each for each in batch if group in counting_groups(rule, each)]
            found |= {each.pk: each for each in counting[: rule.quorum - count]}
            count, after = count + len(counting), batch[-1].pk
    return list(found.values())


def _has_deciding_role(user: User, rule: Rule) -> bool:
    return bool(counting_groups(rule, user))


def _delegator(request: ApprovalRequest, user: User, rule: Rule) -> "User | None":
    """Return the user who delegated the request to this user and may decide it themselves."""
    for delegation in request.delegations.all():
        by = delegation.by
        may = delegation.to_id == user.pk and by.is_active and _has_deciding_role(by, rule)
        if may and _four_eyes_objection(request, by, rule) is None:
            return by
    return None


def _membership_objection(rule: Rule, user: User) -> str:
    if rule.min_role_age_seconds and counting_groups(rule.without_role_age(), user):
        return f"You have not been a member of the group for long enough. {deciders_sentence(rule)}"
    return deciders_sentence(rule)


def _four_eyes_objection(request: ApprovalRequest, user: User, rule: Rule) -> str | None:
    """Return the objection of the four-eyes principle; None if there is none."""
    if not rule.allow_self_review and is_requester(request, user):
        return _requester_objection(rule)
    if request.round_number > 1 and _is_barred_editor(request, user, rule):
        return f"You edited this call, so someone else must decide it. {deciders_sentence(rule)}"
    return None


def _requester_objection(rule: Rule) -> str:
    return f"You requested this call, so someone else must decide it. {deciders_sentence(rule)}"


def _is_barred_editor(request: ApprovalRequest, user: User, rule: Rule) -> bool:
    """Return True if the user may not decide because the current arguments contain an edit by this user.

    The author of the last edit may decide only if one approval is enough and the policy lets editors approve.
    """
    edited_rounds = list(takewhile(lambda round_: round_.editor_id is not None, _rounds_newest_first(request)))
    may = bool(edited_rounds) and _editor_may_approve(edited_rounds[0], rule)
    return user.pk in {round_.editor_id for round_ in (edited_rounds[1:] if may else edited_rounds)}


def _editor_may_approve(round_: Round, rule: Rule) -> bool:
    return round_.quorum == 1 and rule.editor_may_approve


def _rounds_newest_first(request: ApprovalRequest) -> list[Round]:
    return sorted(request.rounds.all(), key=lambda round_: round_.number, reverse=True)
