"""The policies over REST: read by anyone with a role, written by administrators, tried on calls past and imagined."""

from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.models import Policy, PolicyRevision
from approvals.policies import services
from approvals.policies.backtest import BackTest, back_test, draft_of, rulebooks_for
from approvals.policies.simulator import Simulation, simulate
from approvals.policies.terms import columns_of
from approvals.policies_serializers import (
    BackTestBody,
    BackTestSerializer,
    PolicyBody,
    PolicyChangeBody,
    PolicyDetailSerializer,
    PolicyQuery,
    PolicySerializer,
    SimulateBody,
    SimulationSerializer,
)
from catalog.access.roles import NotAllowed, agent_token_of, sees_all
from catalog.errors import ParameterError
from catalog.rest.idempotency import answer_once
from catalog.rest.pagination import page_of, page_schema, paged
from catalog.rest.problems import refusals
from catalog.rest.views import Endpoint
from catalog.schemas import Problem, refuse

READS = ["approvals:read", "policies:write"]
WRITES = ["policies:write"]


class PolicyEndpoint(Endpoint):
    """What the policy paths share."""

    def policy(self, public_id: str) -> Policy:
        """Return a policy, ended or not; raise Http404."""
        try:
            return services.policy_for(self.user, public_id)
        except Policy.DoesNotExist:
            raise Http404 from None

    def shown(self, public_id: str, status: int = 200) -> Response:
        """Answer with the policy as it is now."""
        policy = self.policy(public_id)
        context = {"revisions": services.history_of(policy)}
        return Response(PolicyDetailSerializer(policy, context=context).data, status)

    def for_people_with_a_role(self) -> None:
        """Raise NotAllowed for an agent's token, and for who has no role."""
        if agent_token_of(self.user) is not None or not sees_all(self.user):
            raise NotAllowed("Policies are read by people with a role, not by agents' tokens.")


class PolicyList(PolicyEndpoint):
    """The policies."""

    required_scopes: ClassVar = {"GET": READS, "POST": WRITES}

    @extend_schema("policies_list", parameters=[PolicyQuery], responses=page_schema(PolicySerializer))
    def get(self, request: Request) -> Response:
        """List the policies in their order: the first that fits a call decides."""
        self.for_people_with_a_role()
        query, at = self.page_query(PolicyQuery)
        page = page_of(services.policies_for(self.user, ended=query["ended"]), order="order", at=at)
        return paged(request, page, lambda row: PolicySerializer(row).data)

    @extend_schema("policies_create", request=PolicyBody, responses={201: PolicyDetailSerializer})
    def post(self, request: Request) -> Response:
        """Make a policy. Administrators only."""
        return answer_once(request, self._create, lambda ref: self.shown(ref, 201))

    def _create(self) -> Response:
        return self.shown(services.create(self.body(PolicyBody), by=self.user).public_id, 201)


class PolicyDetail(PolicyEndpoint):
    """One policy."""

    required_scopes: ClassVar = {"GET": READS, "PATCH": WRITES, "DELETE": WRITES}

    @extend_schema("policies_read", responses=PolicyDetailSerializer)
    def get(self, request: Request, public_id: str) -> Response:
        """Show one policy with its revisions."""
        self.for_people_with_a_role()
        return self.shown(public_id)

    @extend_schema("policies_change", request=PolicyChangeBody, responses=PolicyDetailSerializer)
    def patch(self, request: Request, public_id: str) -> Response:
        """Change a policy; other terms make a new revision, and requests keep theirs. Administrators only."""
        services.change(self.policy(public_id), self.body(PolicyChangeBody), by=self.user)
        return self.shown(public_id)

    @extend_schema("policies_end", responses={200: PolicyDetailSerializer})
    def delete(self, request: Request, public_id: str) -> Response:
        """End a policy; it is kept for the requests it held. Administrators only."""
        services.end(self.policy(public_id), by=self.user)
        return self.shown(public_id)


class PolicySimulate(PolicyEndpoint):
    """The policies, asked about a call that nobody makes."""

    required_scopes: ClassVar = {"POST": READS}

    @extend_schema("policies_simulate", request=SimulateBody, responses=SimulationSerializer)
    def post(self, request: Request) -> Response:
        """Say which rule would decide about a call, and why none before it does. Nothing is stored."""
        self.for_people_with_a_role()
        body = self.body(SimulateBody)
        return Response(_simulated(simulate(body["tool"], body["arguments"], body["requester"], body["at"])))


class PolicyBackTest(PolicyEndpoint):
    """A policy, tried on past calls."""

    required_scopes: ClassVar = {"POST": WRITES}

    @extend_schema("policies_back_test", request=BackTestBody, responses={200: BackTestSerializer, **refusals(404)})
    def post(self, request: Request) -> Response:
        """Replay calls of the last days with a policy in place: what it would have held, allowed and denied."""
        if not services.may_change(self.user):
            raise NotAllowed("Only an administrator may try policies on past calls.")
        body = self.body(BackTestBody)
        books = rulebooks_for(self._revision(body["policy"]))
        return Response(_tested(back_test(books, days=body["days"], before=body["before"])))

    def _revision(self, given: Any) -> PolicyRevision:
        """Return the revision to try: of the policy with this id, or a draft."""
        if isinstance(given, str):
            revision = self.policy(given).revision
            if revision is None:
                raise Http404
            return revision
        serializer = PolicyBody(data=given)
        if not serializer.is_valid():
            raise ValidationError({"policy": serializer.errors})
        draft = serializer.validated_data
        return draft_of(_columns(draft), name=draft["name"], order=draft.get("order", services.BEFORE_ALL_OTHERS))


def _columns(draft: dict[str, Any]) -> dict[str, Any]:
    """Return a draft's columns; raise ParameterError with places in the body that holds the draft."""
    try:
        return columns_of(draft | {"notify": []})  # nobody is told of past calls
    except ParameterError as error:
        refuse([Problem(f"policy.{each['path']}", each["code"], each["message"]) for each in error.details["errors"]])
        raise


def _simulated(found: Simulation) -> dict[str, Any]:
    decided = found.decided
    return {
        "effect": found.effect,
        "policy": decided.policy.name if decided else None,
        "rule": str(decided.revision) if decided else None,
        "sentence": found.sentence,
        "stages": decided.revision.stages if decided and found.effect == "hold" else [],
        "passed": [
            {"policy": each.policy.name, "reasons": [reason.text for reason in each.reasons]} for each in found.passed
        ],
    }


def _tested(found: BackTest) -> dict[str, Any]:
    changed = [
        {"call": each.call, "before": each.before, "after": each.after}
        | ({"review": each.review} if each.review else {})
        for each in found.changed
    ]
    return {
        "held": found.counts["hold"],
        "allowed": found.counts["allow"],
        "denied": found.counts["deny"],
        "rejected": found.rejected,
        "other_people": found.other_people,
        "calls": found.calls,
        "changed": changed,
        "next": found.next,
    }
