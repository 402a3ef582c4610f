"""Tests of drafts on the server: changes, merges, undo, and the start."""

import json
from typing import Any

import pytest

from catalog.errors import Conflict, TooLarge
from plans.actions import drafts
from plans.actions.create import PlanProblems
from plans.actions.drafts import (
    DraftBase,
    DraftConflict,
    change_draft,
    create_draft,
    delete_draft,
    read_draft,
    redo_draft,
    restore_draft,
    start_draft,
    undo_draft,
)
from plans.models import Plan, PlanDraft, PlanDraftVersion
from plans.store.requesters import Requester
from tests.builders import act, work_off

pytestmark = pytest.mark.db


def document(*texts: str, goal: str = "Try it") -> dict[str, Any]:
    return {"goal": goal, "steps": [act(number, text) for number, text in enumerate(texts, 1)]}


def put(draft: PlanDraft, wanted: Any, base: int | DraftBase | None = None, by: Any = None) -> PlanDraft:
    begun = draft.version if base is None else base
    summary = f"Wrote {wanted.get('goal')} {[each.get('parameters') for each in wanted['steps']]}"
    return change_draft(draft, base_version=begun, document=wanted, by=by or draft.owner, summary=summary)


def test_changes_are_versions_that_undo_and_redo_go_through(ada):
    texts = [document(*"abcd"[:count]) for count in (1, 2, 3)]
    draft = create_draft(texts[0], by=ada)
    draft = put(put(draft, texts[1]), texts[2])
    assert (draft.version, draft.steps, read_draft(draft)) == (3, 3, texts[2])
    draft = undo_draft(draft, version=3, by=ada)
    draft = undo_draft(draft, version=4, by=ada)
    assert (draft.version, read_draft(draft)) == (5, texts[0])
    with pytest.raises(Conflict, match="nothing to undo"):
        undo_draft(draft, version=5, by=ada)
    draft = redo_draft(draft, version=5, by=ada)
    assert read_draft(draft) == texts[1]
    draft = redo_draft(draft, version=6, by=ada)
    assert read_draft(draft) == texts[2]
    draft = undo_draft(draft, version=7, by=ada)
    draft = put(draft, document("x"))
    with pytest.raises(Conflict, match="nothing to redo"):
        redo_draft(draft, version=draft.version, by=ada)
    assert read_draft(undo_draft(draft, version=draft.version, by=ada)) == texts[1]


def test_what_is_typed_in_one_go_is_undone_together(ada):
    draft = create_draft(document("a"), by=ada)
    for text in ("b", "bc", "bcd"):
        draft = change_draft(
            draft, base_version=draft.version, document=document(text), by=ada, summary="Changed step 1"
        )
    assert read_draft(undo_draft(draft, version=4, by=ada)) == document("a")


def test_a_change_from_an_older_version_is_merged_or_refused(ada, ben):
    draft = create_draft(document("a", "b"), by=ada)
    put(draft, document("A", "b"), by=ben)
    merged = put(draft, document("a", "B"), 1)
    assert (merged.version, read_draft(merged)) == (3, document("A", "B"))
    with pytest.raises(DraftConflict) as refusal:
        put(draft, document("mine", "b"), 1)
    [conflict] = refusal.value.conflicts
    assert (conflict.step_id, conflict.mine, conflict.theirs) == (1, "mine", "A")
    assert refusal.value.draft.version == 3
    kept = put(draft, document("mine", "b"), DraftBase(1, {conflict.path: "mine"}))
    assert read_draft(kept) == document("mine", "B")


def test_undo_from_another_tab_is_refused(ada):
    draft = put(create_draft(document("a"), by=ada), document("b"))
    put(draft, document("c"))
    with pytest.raises(Conflict):
        undo_draft(draft, version=2, by=ada)


def test_a_change_of_nothing_makes_no_version(ada):
    draft = create_draft(document("a"), by=ada)
    assert put(draft, document("a")).version == 1


def test_sizes_and_numbers_are_limited(ada, monkeypatch):
    draft = create_draft(document("a"), by=ada)
    with pytest.raises(TooLarge):
        put(draft, document("a" * 2**20))
    monkeypatch.setattr(drafts, "MOST_DRAFTS", 2)
    second = create_draft(document("b"), by=ada)
    with pytest.raises(Conflict, match="You have 2 drafts"):
        create_draft(document("c"), by=ada)
    delete_draft(draft)
    delete_draft(second)
    draft = create_draft(document("c"), by=ada)
    assert (
        not PlanDraft.objects.filter(deleted_at__isnull=False).exclude(pk=second.pk).exists()
    )  # the oldest makes room
    restore_draft(second)
    with pytest.raises(Conflict, match="You have 2 drafts"):
        create_draft(document("d"), by=ada)
    monkeypatch.setattr(drafts, "MOST_VERSIONS", 10)
    for number in range(12):
        draft = put(draft, document(str(number)))
    assert sorted(draft.versions.values_list("version", flat=True)) == list(range(4, 14))


def test_secrets_are_set_aside_and_started_with(ada, stage):
    secret = "ghp_" + "a1B2" * 9
    draft = put(create_draft(document("a"), by=ada), document(secret))
    shown: Any = read_draft(draft)
    assert secret not in str(shown) and "$secret" in str(shown)
    rows = [*PlanDraft.objects.values_list(), *PlanDraftVersion.objects.values_list()]
    assert not [value for row in rows for value in row if secret in str(value)]
    changed = {**shown, "steps": [*shown["steps"], act(2, "b")], "goal": "More"}
    draft = change_draft(draft, base_version=2, document=changed, by=ada, summary="More")
    work_off(start_draft(draft, version=3, by=Requester(ada)))
    assert stage.values("safe") == [secret, "b"]


def test_a_moved_placeholder_gets_no_secret(ada, stage):
    secret = "ghp_" + "a1B2" * 9
    draft = create_draft(document(secret, "b"), by=ada)
    shown: Any = read_draft(draft)
    first, second = shown["steps"]
    moved = {"goal": "x", "steps": [first, {**second, "parameters": first["parameters"]}]}
    draft = put(draft, moved)
    with pytest.raises(PlanProblems) as refusal:
        start_draft(draft, version=2, by=Requester(ada))
    assert [problem.path for problem in refusal.value.problems] == ["steps.1.parameters.value"]


@pytest.mark.parametrize("text", ["zz%s", "%szz", "x_%s_x", "ä%s", "https://elsewhere/?%s", "%s zz%s", "%s"])
def test_others_neither_see_nor_use_a_secret(ada, ben, stage, text):
    secret = "ghp_" + "a1B2" * 9
    draft = create_draft(document(secret), by=ada)
    shown: Any = read_draft(draft)
    mark = json.dumps(shown["steps"][0]["parameters"]["value"])
    draft = put(draft, document(text.replace("%s", mark), goal="Mine"), by=ben)
    assert "a1B2" not in json.dumps([read_draft(draft), list(PlanDraft.objects.values("goal"))])
    with pytest.raises(PlanProblems):
        start_draft(draft, version=2, by=Requester(ben))


def test_a_draft_is_started_once_and_then_is_its_plan(ada, stage):
    draft = create_draft(document("a"), by=ada)
    plan = start_draft(draft, version=1, by=Requester(ada))
    assert start_draft(draft, version=1, by=Requester(ada)) == plan
    draft.refresh_from_db()
    assert (Plan.objects.count(), draft.plan, draft.sealed, draft.versions.count()) == (1, plan, "", 0)
    for act_on in (lambda: put(draft, document("b")), lambda: delete_draft(draft)):
        with pytest.raises(Conflict):
            act_on()


def test_a_draft_that_was_changed_or_has_problems_is_not_started(ada, stage):
    draft = create_draft(document("a"), by=ada)
    put(draft, document("b"))
    with pytest.raises(Conflict, match="changed"):
        start_draft(draft, version=1, by=Requester(ada))
    put(draft, {"goal": "x", "steps": []}, 2)
    with pytest.raises(PlanProblems):
        start_draft(draft, version=3, by=Requester(ada))
    assert not Plan.objects.exists()


def test_a_deleted_draft_can_be_restored(ada):
    draft = create_draft(document("a"), by=ada)
    delete_draft(draft)
    with pytest.raises(Conflict, match="deleted"):
        put(draft, document("b"))
    restore_draft(draft)
    assert put(draft, document("b")).version == 2
