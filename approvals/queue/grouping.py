"""Groups of a list of requests: those that expire soon first, then one group for each plan and one for direct calls."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from django.contrib.auth.models import User
from django.utils.translation import gettext

from approvals.models import ApprovalRequest

PlanTitles = Callable[[User, Collection[str]], Mapping[str, str]]
_plan_titles: list[PlanTitles] = []


def register_plan_titles(titles: PlanTitles) -> None:
    """Register a function from viewer and plan ids to the titles of the plans that the viewer may see."""
    _plan_titles[:] = [titles]


@dataclass(slots=True)
class RequestGroup:
    """A group of requests: those of one plan, those of direct calls (no `plan_ref`), or those that expire soon."""

    title: str
    plan_ref: str = ""
    expires_soon: bool = False
    requests: list[ApprovalRequest] = field(default_factory=list)


def group_requests(
    viewer: User, requests: Iterable[ApprovalRequest], expiring: Collection[int] = ()
) -> list[RequestGroup]:
    """Return the groups in the order of their first requests, after the group of requests with keys in `expiring`."""
    listed = list(requests)
    soon = [request for request in listed if request.pk in expiring]
    places: dict[str, int] = {}
    for place, request in enumerate(listed):
        places.setdefault(request.plan_ref or request.public_id, place)
    others = [request for request in listed if request.pk not in expiring]
    others.sort(key=lambda request: places[request.plan_ref or request.public_id])  # also if the plan gets no title
    refs = {request.plan_ref for request in others}
    titles = _plan_titles[0](viewer, refs) if refs and _plan_titles else {}
    count = Counter(titles.values())
    groups: dict[str, RequestGroup] = {}
    for request in others:
        ref = request.plan_ref if request.plan_ref in titles else ""
        if ref not in groups:
            title = titles[ref] if ref else gettext("No plan")
            groups[ref] = RequestGroup(f"{title} · {ref[-6:]}" if count[title] > 1 else title, ref)
        groups[ref].requests.append(request)
    first = [RequestGroup(gettext("Expires soon"), expires_soon=True, requests=soon)] if soon else []
    return [*first, *groups.values()]
