"""Drafts of plans on the server: create, change, undo, redo, delete and start. `change_draft` alone changes a document.

Each change is a new version, stored by an UPDATE that names the version before it. A change that was made from an older
version is merged by step and field, or refused with both sides.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from cryptography.fernet import InvalidToken
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _
from pydantic import ValidationError

from catalog.calls.vault import keyring
from catalog.core import clock
from catalog.core.canonical_json import MAX_JSON_BYTES, Json, check_json, json_size
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, MalformedJSON, TooLarge
from catalog.models import Call
from catalog.secrets.placeholders import redact_text
from plans.actions.create import PlanOrigin, PlanProblems, check_document, create_plan
from plans.documents.editing import steps_of
from plans.documents.merging import MergeConflict, Side, merge_documents
from plans.models import Plan, PlanDraft, PlanDraftVersion
from plans.spec import MAX_STEPS, PlanDocument
from plans.store.draft_secrets import DraftContent, content_of
from plans.store.requesters import Requester

MOST_DRAFTS = 200
"""Maximum number of a person's drafts; the deleted ones, which can be restored for a day, make room for new ones."""
MOST_VERSIONS = 100
MOST_VERSION_BYTES = 16 * 1024 * 1024
"""Maximum size of a draft's earlier versions together; the oldest are dropped first, but never the latest ten."""
LEAST_VERSIONS = 10
KEPT_DELETED = timedelta(days=1)
ONE_CHANGE = timedelta(seconds=10)
"""Changes of one person with the same summary within this time are undone together."""
MOST_SUMMARY = 200
MOST_STEPS = 2 * MAX_STEPS
"""Maximum number of steps of a draft; a plan that is started has at most half as many."""
MOST_LISTED_GOAL = 2000
ATTEMPTS = 5


class DraftConflict(Conflict):
    """Others changed the same values of a draft meanwhile; nothing was stored.

    `draft` is the current draft, `base_version` the version from which `document` was made.
    """

    def __init__(self, draft: PlanDraft, base_version: int, document: Json, conflicts: Sequence[MergeConflict]) -> None:
        super().__init__(_("Someone else changed the same part of this draft. Choose which version to keep."))
        self.draft = draft
        self.base_version = base_version
        self.document = document
        self.conflicts = conflicts


@dataclass(frozen=True, slots=True)
class DraftSource:
    """The origin of a new draft: a call of the planner, a plan, or a starter; `is_proposal` marks a model's text."""

    call: Call | None = None
    plan: Plan | None = None
    starter: str = ""
    is_proposal: bool = False


NO_SOURCE = DraftSource()
NOTHING = DraftContent(None, {})


def document_text(document: Json) -> str:
    """Return a draft's document as text, with its keys in their order. Raises MalformedJSON and TooLarge."""
    _check_limits(document)
    return _text_of(document)


def _check_limits(document: Json) -> None:
    count = len(steps_of(check_json(document)))
    if count > MOST_STEPS:
        message = _("A draft can have at most %(limit)s steps, and this one has %(count)s. Remove some of them.")
        raise MalformedJSON(message % {"limit": MOST_STEPS, "count": count}, code="too_many_steps").inside("steps")
    _limit_size(json_size(document))


def _limit_size(size: int) -> None:
    if size > MAX_JSON_BYTES:
        raise TooLarge(_("The plan"), size=size, limit=MAX_JSON_BYTES)


def _text_of(document: Json) -> str:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    _limit_size(len(text.encode()))  # with its line breaks and spaces, because it is read again with them
    return text


def is_same_document(one: Json, other: Json) -> bool:
    """Return whether two documents have the same text, keys in the same order."""
    return json.dumps(one) == json.dumps(other)


@retry_on_deadlock
def create_draft(document: Json, *, by: User, source: DraftSource = NO_SOURCE) -> PlanDraft:
    """Store a new draft. Raises Conflict if the person has too many, MalformedJSON and TooLarge."""
    _check_limits(document)
    content, now = content_of(document, {}, by=by.pk), clock.now()
    sealed = _sealed(content)
    with transaction.atomic():
        PlanDraft.objects.filter(deleted_at__lt=now - KEPT_DELETED).delete()
        mine = PlanDraft.objects.filter(owner=by, plan=None)
        room = MOST_DRAFTS - mine.filter(deleted_at=None).count() - 1
        if room < 0:
            message = _("You have %(count)s drafts, which is the most. Start or delete one of them first.")
            raise Conflict(message % {"count": MOST_DRAFTS})
        deleted = mine.filter(deleted_at__isnull=False).order_by("-deleted_at")
        PlanDraft.objects.filter(pk__in=list(deleted.values_list("pk", flat=True)[room:])).delete()
        draft = PlanDraft.objects.create(
            owner=by,
            sealed=sealed,
            created_at=now,
            updated_at=now,
            updated_by=by,
            call=source.call,
            cloned_from=source.plan,
            starter=source.starter,
            sealed_proposal=sealed if source.is_proposal else "",
            **_listed_fields(document),
        )
        PlanDraftVersion.objects.create(
            draft=draft, version=1, sealed=sealed, by=by, at=now, summary=_("Created the draft")
        )
    return draft


def _listed_fields(document: Json) -> dict[str, str | int]:
    goal = document.get("goal") if isinstance(document, dict) else None
    steps = document.get("steps") if isinstance(document, dict) else None
    listed = redact_text(goal[:MOST_LISTED_GOAL]) if isinstance(goal, str) else ""
    return {"goal": listed.replace("\0", ""), "steps": len(steps) if isinstance(steps, list) else 0}


def _sealed(content: DraftContent) -> str:
    return keyring().encrypt(json.dumps([_text_of(content.document), content.secrets], ensure_ascii=False))


def read_draft(draft: PlanDraft | PlanDraftVersion) -> Json:
    """Return the document of a draft or version, without secrets. Raises Conflict if it cannot be decrypted."""
    return read_content(draft).document


def read_content(draft: PlanDraft | PlanDraftVersion) -> DraftContent:
    """Return the document of a draft or version, and its secrets. Raises Conflict if it cannot be decrypted."""
    try:
        text, secrets = json.loads(keyring().decrypt(draft.sealed))
    except InvalidToken:
        raise Conflict(_("This draft was encrypted with a key that this installation no longer has.")) from None
    return DraftContent(json.loads(text), secrets)  # checked when it was stored


@dataclass(frozen=True, slots=True)
class DraftBase:
    """The version from which a changed document was made; `choices` decide conflicts by path."""

    version: int
    choices: Mapping[str, Side] = field(default_factory=dict)


@retry_on_deadlock
def change_draft(
    draft: PlanDraft, *, base_version: int | DraftBase, document: Json, by: User, summary: str
) -> PlanDraft:
    """Store a document that was made from `base_version`, merged with what others changed since; return the draft.

    A document that changes nothing makes no version. Raises DraftConflict if a conflict is undecided, Conflict if the
    draft was started or deleted, MalformedJSON and TooLarge.
    """
    began = base_version if isinstance(base_version, DraftBase) else DraftBase(base_version)
    _check_limits(document)  # before anything is compared
    for _attempt in range(ATTEMPTS):
        current = _open_draft(draft)
        stored = read_content(current)
        merged, known = document, stored.secrets
        if began.version != current.version:
            row = current.versions.filter(version=began.version).first()
            base = read_content(row) if row else NOTHING
            found = merge_documents(base.document, stored.document, document, began.choices)
            if found.conflicts:
                raise DraftConflict(current, began.version, document, found.conflicts)
            merged = found.document
            _check_limits(merged)
            known = {**base.secrets, **stored.secrets}
        content = content_of(merged, known, by=by.pk)
        is_same = is_same_document(content.document, stored.document)
        if (is_same and content.secrets == stored.secrets) or _store_version(current, content, by, summary):
            return current
    raise Conflict(_("Others are changing this draft right now. Nothing was changed. Try again."))


def undo_draft(draft: PlanDraft, *, version: int, by: User) -> PlanDraft:
    """Return to the version before the last change. Raises Conflict if there is none or `version` is not current."""
    return _return_to(draft, version, by, is_redo=False)


def redo_draft(draft: PlanDraft, *, version: int, by: User) -> PlanDraft:
    """Take back the last undo. Raises Conflict if there is none or `version` is not current."""
    return _return_to(draft, version, by, is_redo=True)


@retry_on_deadlock
def _return_to(draft: PlanDraft, version: int, by: User, *, is_redo: bool) -> PlanDraft:
    current = _open_draft(draft)
    if current.version != version:
        raise Conflict(_("The draft was changed meanwhile. Nothing was changed. Look at it again."))
    last = current.versions.get(version=version)
    wanted = last.redo_to if is_redo else last.undo_to
    target = current.versions.filter(version=wanted).first() if wanted else None
    if target is None:
        raise Conflict(_("There is nothing to redo.") if is_redo else _("There is nothing to undo."))
    said = (_("Redid: %(change)s") if is_redo else _("Undid: %(change)s")) % {
        "change": (target if is_redo else last).summary
    }
    redo_to = target.redo_to if is_redo else version
    if not _store_version(current, read_content(target), by, said, (target.undo_to, redo_to)):
        raise Conflict(_("The draft was changed meanwhile. Nothing was changed. Look at it again."))
    return current


def _open_draft(draft: PlanDraft) -> PlanDraft:
    current = PlanDraft.objects.select_related("owner", "updated_by", "plan").get(pk=draft.pk)
    if current.plan_id is not None:
        raise Conflict(_("This draft was started, so it can no longer be changed."))
    if current.deleted_at is not None:
        raise Conflict(_("This draft was deleted. Restore it to change it."))
    return current


def _store_version(
    draft: PlanDraft,
    content: DraftContent,
    by: User,
    summary: str,
    returns: tuple[int | None, int | None] | None = None,
) -> bool:
    """Store the next version; return False, changing nothing, if another one was stored first.

    `returns` has the versions to which Undo and Redo lead; without it, Undo leads to the version before.
    """
    now, sealed = clock.now(), _sealed(content)
    fields = {"sealed": sealed, "updated_at": now, "updated_by": by, **_listed_fields(content.document)}
    summary = redact_text(summary)[:MOST_SUMMARY].replace("\0", "")
    with transaction.atomic():
        unchanged = PlanDraft.objects.filter(pk=draft.pk, version=draft.version, plan=None, deleted_at=None)
        if not unchanged.update(version=draft.version + 1, **fields):
            return False
        if returns is None:
            last = draft.versions.only("by_id", "at", "summary", "undo_to", "redo_to").get(version=draft.version)
            goes_on = (last.by_id, last.summary, last.redo_to) == (by.pk, summary, None) and now - last.at < ONE_CHANGE
            returns = (last.undo_to if goes_on and last.undo_to else draft.version, None)
        PlanDraftVersion.objects.create(
            draft=draft,
            version=draft.version + 1,
            sealed=sealed,
            by=by,
            at=now,
            summary=summary,
            undo_to=returns[0],
            redo_to=returns[1],
        )
        kept = max(LEAST_VERSIONS, min(MOST_VERSIONS, MOST_VERSION_BYTES // len(sealed)))
        draft.versions.filter(version__lte=draft.version + 1 - kept).delete()
    draft.version += 1
    for name, value in fields.items():
        setattr(draft, name, value)
    return True


def keep_unread(draft: PlanDraft, text: str, text_format: PlanDraft.Format, *, by: User) -> None:
    """Keep a text that cannot be read as a plan beside the document; an empty text removes it, whoever wrote it.

    Only who wrote it may see it, because it was not searched for secrets. Raises TooLarge, and Conflict if somebody
    else's text is kept or the draft was started or deleted.
    """
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_JSON_BYTES:
        raise TooLarge(_("The text"), size=size, limit=MAX_JSON_BYTES)
    fields = {
        "sealed_unread": keyring().encrypt(text) if text else "",
        "unread_format": text_format if text else "",
        "unread_by": by if text else None,
    }
    rows = PlanDraft.objects.filter(pk=draft.pk, plan=None, deleted_at=None)
    if text:
        rows = rows.filter(Q(sealed_unread="") | Q(unread_by=by))
    if not rows.update(**fields):
        _open_draft(draft)
        raise Conflict(
            _("This text cannot be read as a plan, and it is not kept on the server: somebody else's text is.")
        )
    for name, value in fields.items():
        setattr(draft, name, value)


def delete_draft(draft: PlanDraft) -> None:
    """Delete a draft; it can be restored for a day. Raises Conflict if it was started."""
    if not PlanDraft.objects.filter(pk=draft.pk, plan=None).update(deleted_at=clock.now()):
        raise Conflict(_("This draft was started, so it can no longer be deleted."))


def restore_draft(draft: PlanDraft) -> None:
    """Restore a deleted draft; it counts among its owner's drafts even while it is deleted, so there is room for it."""
    PlanDraft.objects.filter(pk=draft.pk).update(deleted_at=None)


@dataclass(slots=True)
class _DraftOrigin:
    draft: PlanDraft
    version: int
    origin: PlanOrigin | None

    @property
    def request(self) -> str:
        return self.origin.request if self.origin else ""

    def become(self, plan: Plan) -> None:
        """Link the draft to its plan and delete its texts. Raises Conflict if it was changed or started meanwhile."""
        texts = {"sealed": "", "sealed_proposal": "", "sealed_unread": ""}
        same = PlanDraft.objects.filter(pk=self.draft.pk, version=self.version, plan=None, deleted_at=None)
        if not same.update(plan=plan, **texts):
            raise Conflict(_("The draft was changed or started meanwhile. Nothing was started. Look at it again."))
        self.draft.versions.all().delete()
        if self.origin:
            self.origin.become(plan)


def start_draft(draft: PlanDraft, *, version: int, by: Requester, origin: PlanOrigin | None = None) -> Plan:
    """Store and start the plan of this version of a draft; for a started draft, return its plan.

    `origin` is what the draft itself came from. Raises Conflict if the draft has another version now, PlanProblems, and
    the errors of `origin.become`.
    """
    current = PlanDraft.objects.select_related("cloned_from").get(pk=draft.pk)
    if (started := _plan_of(draft)) is not None:
        return started
    if current.version != version:
        raise Conflict(_("The draft was changed meanwhile. Nothing was started. Look at it again."))
    document = read_content(current).opened_for(by.user.pk)
    try:
        checked = PlanDocument.model_validate(document)
    except ValidationError:
        raise PlanProblems(check_document(document, by=by)) from None
    try:
        return create_plan(
            checked, by=by, original_plan=current.cloned_from, origin=_DraftOrigin(current, version, origin)
        )
    except Conflict:
        if (started := _plan_of(draft)) is not None:  # pressed twice
            return started
        raise


def _plan_of(draft: PlanDraft) -> Plan | None:
    return Plan.objects.filter(draft=draft.pk).first()
