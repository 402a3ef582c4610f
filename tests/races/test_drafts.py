"""Races of people who start the same draft: one succeeds, the others get a conflict."""

from functools import partial

import pytest

from catalog.errors import Conflict
from plans.models import Plan
from plans.planner import drafts
from plans.store.requesters import Requester
from tests import counts
from tests.builders import make_draft
from tests.racing import rounds_at_once

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.timeout(counts.seconds(1800))]

ROUNDS = counts.count(200, 30)
STARTERS = 3


def test_a_draft_is_started_once_however_many_start_it(transactional_db, catalog, ada, report_race):
    calls = [make_draft(ada) for _ in range(ROUNDS)]
    plans_before = Plan.objects.count()
    races = [[partial(drafts.start_draft, call, by=Requester(ada))] * STARTERS for call in calls]
    for call, results in zip(calls, rounds_at_once(races), strict=True):
        started = [each for each in results if isinstance(each, Plan)]
        assert len(started) == 1
        assert sum(isinstance(each, Conflict) for each in results) == STARTERS - 1
        assert set(call.model_uses.values_list("plan", flat=True)) == {started[0].pk}
    assert Plan.objects.count() == plans_before + ROUNDS
    report_race("starts of a draft", ROUNDS)
