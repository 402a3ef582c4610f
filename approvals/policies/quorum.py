"""Quorum: whether the approvals given are enough for a rule, and what is still missing. Never writes.

Each person has one vote. It goes to the stage that needs it, whatever the order of votes.
"""

from collections.abc import Collection, Iterable

from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, Review
from approvals.policies.eligibility import counting_groups, may_decide
from approvals.policies.rulebook import Rule, rule_for
from approvals.policy_language.stages import Stage, unfilled_stages
from approvals.states import ReviewVerdict

EXTRA_APPROVAL_REASON = (
    "This call uses values from a step that its approver changed or answered, so one more person must approve it."
)


def is_enough(request: ApprovalRequest, reviews: Iterable[Review], rule: Rule | None = None) -> bool:
    """Return True if the approvals of reviewers who are still eligible satisfy the rule. Their users must be loaded.

    If the rule requires signatures, approvals without one do not count: they were given under an earlier revision.
    """
    rule = rule or rule_for(request)
    counting = [each for each in reviews if each.passkey or not rule.fresh_passkey]
    counting = [each for each in counting if may_decide(request, each.person, rule) is None]
    counting = [each for each in counting if _is_vote_authorized(request, each)]
    if not is_satisfied(rule, voters(counting)):
        return False
    return _has_independent_approver(request, {each.person_id for each in counting}, rule)


def extra_approval_reason(request: ApprovalRequest, viewer: User) -> str:
    """Return the reason why a request needs one approval more than its rule requires; empty if it does not.

    Judges the approvals given, or one by the viewer if there are none. Needs a request from `with_related`.
    """
    given = {review.person_id for review in approvals_of(request)}
    people = given or {viewer.pk}
    return "" if _has_independent_approver(request, people, rule_for(request)) else EXTRA_APPROVAL_REASON


def _has_independent_approver(request: ApprovalRequest, people: Collection[int], rule: Rule) -> bool:
    """Return True if at least one of these people is not an author of the call's input."""
    return rule.allow_self_review or not request.input_authors or not set(request.input_authors).issuperset(people)


def _is_vote_authorized(request: ApprovalRequest, review: Review) -> bool:
    """Return True if the reviewer voted in their own right, or under a delegation that still exists."""
    giver = review.on_behalf_of_id
    return giver is None or any(
        each.by_id == giver and each.to_id == review.person_id for each in request.delegations.all()
    )


def missing_stages(request: ApprovalRequest) -> list[Stage]:
    """Return the stages that still lack approvals in the current round of a request from `with_related`."""
    return unmet_stages(rule_for(request), voters(approvals_of(request)))


def approvals_of(request: ApprovalRequest) -> list[Review]:
    """Return those approvals of a request from `with_related` that count."""
    return [review for review in request.reviews.all() if review.verdict == ReviewVerdict.APPROVE and review.counts]


def voters(reviews: Iterable[Review]) -> list[User]:
    """Return the users who voted; a delegate's review is the vote of the user who delegated."""
    return [review.on_behalf_of or review.person for review in reviews]


def is_satisfied(rule: Rule, people: Iterable[User]) -> bool:
    return bool(rule.stages) and not unmet_stages(rule, people)


def unmet_stages(rule: Rule, people: Iterable[User]) -> list[Stage]:
    """Return the stages that these people do not fill, with the number of missing approvals."""
    distinct = {person.pk: person for person in people}.values()
    return unfilled_stages(rule.stages, [counting_groups(rule, person) for person in distinct])
