"""Eligibility: who may decide a request, on whose behalf, and whether the approvals given are enough.

Never writes. Requesters and editors of a call do not decide it, superusers included. One person has one vote over all
stages; members of the groups of two stages are counted where they help most, so the order of votes never matters.
"""

from collections.abc import Collection, Iterable
from itertools import takewhile
from typing import Any, Protocol

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from approvals.audit.accounts import groups_held_long_enough
from approvals.models import ApprovalRequest, Delegation, Review, Round
from approvals.policies.rulebook import Rule, rule_for
from approvals.policy_language import stages
from approvals.policy_language.stages import Stage, unfilled_stages
from approvals.states import ReviewVerdict
from catalog.access.roles import (
    ADMINISTRATOR,
    REVIEWER,
    agent_token_of,
    groups_of,
    prefetch_groups,
    roles_of,
    user_display_name,
)
from catalog.models import CallRequester


class StageTerms(Protocol):
    """What of a rule says who must agree."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in the policy's order."""

    @property
    def escalated_to(self) -> str:
        """The group whose members may answer in every stage, because nobody else did; empty for none."""

    @property
    def min_role_age_seconds(self) -> int:
        """How long someone must have been in a group to count there; 0 for any time."""


def counting_groups(rule: StageTerms, user: User) -> frozenset[str]:
    """Return in which of the rule's groups someone counts: those they have been in for long enough.

    Administrators do all that reviewers do, and so count as reviewers: as long as they have administered.
    """
    wanted = frozenset(stage.group for stage in rule.stages)
    asked = wanted | {rule.escalated_to} if rule.escalated_to else wanted
    groups = groups_of(user) | (roles_of(user) & {ADMINISTRATOR})
    held = groups_held_long_enough(user, groups & (asked | {ADMINISTRATOR}), rule.min_role_age_seconds)
    if ADMINISTRATOR in held:
        held |= {REVIEWER}
    return wanted if rule.escalated_to in held else held & asked


def is_satisfied(rule: StageTerms, people: Iterable[User]) -> bool:
    """Say whether these people's agreement is enough for the rule."""
    return bool(rule.stages) and not unmet_stages(rule, people)


def unmet_stages(rule: StageTerms, people: Iterable[User]) -> list[Stage]:
    """Return who is missing when these people have agreed: the stages that lack someone, with how many they lack."""
    distinct = {person.pk: person for person in people}.values()
    return unfilled_stages(rule.stages, [counting_groups(rule, person) for person in distinct])


MAX_CANDIDATES = 200
"""At most so many people are looked at who might decide one request."""
EXTRA_APPROVAL_REASON = (
    "This call takes values from a step that its approver changed or answered, so one more person must approve it."
)


def may_decide(request: ApprovalRequest, user: User, rule: Rule | None = None) -> str | None:
    """Return None when the user may decide the request, else a sentence that says why not and who may.

    `rule` is judged by in place of the one that holds the request. A delegation counts as long as who gave it might.
    """
    rule = rule or rule_for(request)
    if (why_not := _role_objection(user, rule)) is not None:
        return why_not
    if not _has_deciding_role(user, rule) and _delegator(request, user, rule) is None:
        return _membership_objection(rule, user)
    return _four_eyes_objection(request, user, rule)


def may_revoke_approval(request: ApprovalRequest, user: User) -> str | None:
    """Return None when the user may take an approval away; else why not. What only makes things safer bars nobody
    whose group, or whose delegation, lets them decide: neither who asked nor who changed what is asked.
    """
    rule = rule_for(request)
    if (why_not := _role_objection(user, rule)) is not None:
        return why_not
    return (
        None
        if _has_deciding_role(user, rule) or _delegator(request, user, rule) is not None
        else _membership_objection(rule, user)
    )


def may_pre_approve(rule: Rule, user: User, askers: Collection[int]) -> str | None:
    """Return None when the user might decide what the rule holds, before anybody is asked; else why not, and who may.

    `askers` are the keys of the people who ask for the call.
    """
    if (why_not := _role_objection(user, rule)) is not None:
        return why_not
    if not _has_deciding_role(user, rule):
        return _membership_objection(rule, user)
    return _requester_objection(rule) if not rule.allow_self_review and user.pk in askers else None


def _role_objection(user: User, rule: Rule) -> str | None:
    if agent_token_of(user) is not None:
        return f"Agents' tokens never decide. {deciders_sentence(rule)}"
    return None if user.is_active else f"This account is switched off. {deciders_sentence(rule)}"


def delegator_of(request: ApprovalRequest, user: User) -> "User | None":
    """Return in whose place the user decides the request; None when it is by their own right, or not at all."""
    rule = rule_for(request)
    return None if _has_deciding_role(user, rule) else _delegator(request, user, rule)


def editor_counts(request: ApprovalRequest, user: User) -> bool:
    """Say whether this person's approval counts in the round that stands: not everywhere an editor's does."""
    round_ = _rounds_newest_first(request)[0]
    return round_.editor_id != user.pk or _editor_may_approve(round_, rule_for(request))


def is_enough(request: ApprovalRequest, approvals: Iterable[Review], rule: Rule | None = None) -> bool:
    """Say whether these approvals, people loaded, satisfy the rule: those of people who may still decide count."""
    rule = rule or rule_for(request)
    counting = [each for each in approvals if may_decide(request, each.person, rule) is None]
    counting = [each for each in counting if _is_vote_authorized(request, each)]
    if not is_satisfied(rule, voters(counting)):
        return False
    return _has_independent_approver(request, {each.person_id for each in counting}, rule)


def extra_approval_reason(request: ApprovalRequest, viewer: User) -> str:
    """Say why one more person must approve a request, loaded whole, than its rule asks for; empty where none must.

    Asked of the approvals there are, or else of the viewer's own.
    """
    given = {review.person_id for review in approvals_of(request)}
    people = given or {viewer.pk}
    return "" if _has_independent_approver(request, people, rule_for(request)) else EXTRA_APPROVAL_REASON


def is_input_author(request: ApprovalRequest, user: User) -> bool:
    """Say whether the user changed or answered an earlier step that the call takes values from."""
    return user.pk in request.input_authors


def _has_independent_approver(request: ApprovalRequest, people: Collection[int], rule: Rule) -> bool:
    """Say whether anyone among these people did not make what the call takes values from."""
    return rule.allow_self_review or not request.input_authors or not set(request.input_authors).issuperset(people)


def _is_vote_authorized(request: ApprovalRequest, review: Review) -> bool:
    """Say whether the vote is the reviewer's own, or of someone who has let them answer, and has not taken it back."""
    giver = review.on_behalf_of_id
    return giver is None or any(
        each.by_id == giver and each.to_id == review.person_id for each in request.delegations.all()
    )


def missing_stages(request: ApprovalRequest) -> list[stages.Stage]:
    """Return which people are still missing for the round that stands, of a request that was loaded whole."""
    return unmet_stages(rule_for(request), voters(approvals_of(request)))


def approvals_of(request: ApprovalRequest) -> list[Review]:
    """Return the approvals that count, of a request that was loaded whole."""
    return [review for review in request.reviews.all() if review.verdict == ReviewVerdict.APPROVE and review.counts]


def voters(reviews: Iterable[Review]) -> list[User]:
    """Return by whose right the reviews were given: who delegated a request and who answered it have one vote."""
    return [review.on_behalf_of or review.person for review in reviews]


def review_audit_details(review: Review) -> dict[str, Any]:
    """Return what the audit log says of a review beside who gave it: one's own request or input, or in whose place."""
    told: dict[str, Any] = {"on_behalf_of": user_display_name(review.on_behalf_of)} if review.on_behalf_of else {}
    if is_input_author(review.request, review.person):
        told["input_author"] = True
    return told | {"self_review": True} if is_requester(review.request, review.person) else told


def is_requester(request: ApprovalRequest, user: User) -> bool:
    """Say whether the user is among those who asked for the call."""
    asked = {each.user_id for each in request.call.requesters.all()}
    return user.pk == request.call.requested_by_id or user.pk in asked


def deciders_sentence(rule: Rule) -> str:
    """Say who may decide what the rule holds."""
    asked = "" if rule.allow_self_review else " who did not ask for the call"
    groups = dict.fromkeys([*rule.groups, *([ADMINISTRATOR] if REVIEWER in rule.groups else [])])
    return f"Only a member of {' or '.join(groups)}{asked} may decide."


def candidate_reviewers(people: QuerySet[User], request: ApprovalRequest) -> QuerySet[User]:
    """Return those of these people who may be expected to answer, perhaps twice: members of the groups that are asked,
    and whom somebody let answer in their place; not who asked. `may_decide` then judges each.
    """
    rule = rule_for(request)
    delegates = Delegation.objects.filter(request=request).values("to")
    members = people.filter(Q(groups__name__in=rule.groups) | Q(pk__in=delegates))
    if rule.allow_self_review:
        return members
    return members.exclude(pk__in=CallRequester.objects.filter(call=request.call_id).values("user_id"))


def other_deciders(request: ApprovalRequest, user: User) -> list[User]:
    """Return who else may decide a request, by name; two queries, more where the rule asks how long a role is held."""
    rule = rule_for(request)
    groups = Q(groups__name__in=[*rule.groups, ADMINISTRATOR]) | Q(is_superuser=True)
    people = get_user_model().objects.filter(groups, is_active=True).exclude(pk=user.pk).distinct()
    some = list(people.order_by("first_name", "username")[:MAX_CANDIDATES])
    prefetch_groups(some)
    return [each for each in some if may_decide(request, each, rule) is None]


def _has_deciding_role(user: User, rule: Rule) -> bool:
    return bool(counting_groups(rule, user))


def _delegator(request: ApprovalRequest, user: User, rule: Rule) -> "User | None":
    """Return who delegated the request to the user and might decide it themselves."""
    for delegation in request.delegations.all():
        by = delegation.by
        may = delegation.to_id == user.pk and by.is_active and _has_deciding_role(by, rule)
        if may and _four_eyes_objection(request, by, rule) is None:
            return by
    return None


def _membership_objection(rule: Rule, user: User) -> str:
    if rule.min_role_age_seconds and counting_groups(rule.without_role_age(), user):
        return f"You have not been a member for long enough to decide this. {deciders_sentence(rule)}"
    return deciders_sentence(rule)


def _four_eyes_objection(request: ApprovalRequest, user: User, rule: Rule) -> str | None:
    """Return why four eyes forbid it; None when they do not."""
    if not rule.allow_self_review and is_requester(request, user):
        return _requester_objection(rule)
    if request.round_number > 1 and _is_barred_editor(request, user, rule):
        return f"You changed what is asked, so someone else must decide it. {deciders_sentence(rule)}"
    return None


def _requester_objection(rule: Rule) -> str:
    return f"You asked for this call, so someone else must decide it. {deciders_sentence(rule)}"


def _is_barred_editor(request: ApprovalRequest, user: User, rule: Rule) -> bool:
    """Say whether an edit of this person is in what stands now, and bars them: an earlier one does.

    The last edit bars its author where several must agree, or the policy lets no editor approve. A round without an
    editor is as it was asked.
    """
    edited_rounds = list(takewhile(lambda round_: round_.editor_id is not None, _rounds_newest_first(request)))
    may = bool(edited_rounds) and _editor_may_approve(edited_rounds[0], rule)
    return user.pk in {round_.editor_id for round_ in (edited_rounds[1:] if may else edited_rounds)}


def _editor_may_approve(round_: Round, rule: Rule) -> bool:
    return round_.quorum == 1 and rule.editor_may_approve


def _rounds_newest_first(request: ApprovalRequest) -> list[Round]:
    """Return the rounds, the one that stands first."""
    return sorted(request.rounds.all(), key=lambda round_: round_.number, reverse=True)
