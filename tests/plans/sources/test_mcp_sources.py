"""Tools of an upstream MCP server: imported, called, held when they change, and approved as they are."""

import base64
import json

import pytest
from django.db.models import F, Q

from approvals.models import ApprovalRequest
from approvals.requests import lifecycle
from catalog.errors import ToolHeld, UpstreamUnavailable
from catalog.inventory import snapshot
from catalog.inventory.held_changes import accept_changes, accept_version, held_digest
from catalog.inventory.overrides import apply_overrides
from catalog.inventory.selectors import callable_versions
from catalog.inventory.source_preview import preview_source
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source, update_source
from catalog.models import Call, Source, Tool, ToolVersion
from catalog.sources import mcp_client
from plans.demo.sources import TIME_SERVER
from plans.engine.calls import prepare_call
from plans.llm.tools import tools_callable_by
from plans.store.requesters import Requester
from tests.builders import approve, call_of, make_plan, request_of, step, step_of, work_off
from tests.invariants import assert_invariants
from tests.upstreams import DROP, READ, TEXT


def current_version(name: str) -> ToolVersion:
    """Return the version of a tool that is called."""
    return ToolVersion.objects.get(tool__name=name, tool__current_version=F("pk"))


def test_level_follows_from_hints_and_trust(admin, db, offer, shared_upstream, settings):
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    values = {"name": "wiki", "kind": "mcp", "url": shared_upstream.url}
    for trusted, levels in ((True, ["safe", "dangerous"]), (False, ["cautious", "dangerous"])):
        preview = preview_source({**values, "trusted": trusted}, by=admin)
        assert ([each.safety_level for each in preview.tools], preview.problems) == (levels, ())
    assert not Source.objects.filter(name="wiki").exists()


def test_safe_call_runs_and_dangerous_one_waits(program_source, ada, rosa):
    plan = work_off(make_plan(ada, step(1, "read_page", parameters={"text": "a"})))
    assert json.loads(call_of(plan).response)["results"] == [{"text": "a"}]
    plan = work_off(make_plan(ada, step(1, "drop_page", parameters={"text": "a"})))
    approve(plan, rosa)
    work_off(plan)
    assert call_of(plan).status == "completed"


def test_change_is_held_until_it_is_accepted(source, ada, admin, offer):
    plan = work_off(make_plan(ada, step(1, "drop_page", parameters={"text": "a"})))
    offer(READ, {**DROP, "inputSchema": {**TEXT, "required": []}})
    assert sync_source(source).drifted == ["drop_page"]
    row = Tool.objects.get(name="drop_page")
    assert (row.status, current_version("drop_page").number) == ("drifted", 1)
    with pytest.raises(ToolHeld):
        prepare_call("drop_page", {"text": "a"})
    assert "drop_page" not in tools_callable_by(Requester(ada))  # planners and agents are not offered it

    lifecycle.invalidate_outdated()
    plan.steps.update(ready_at=plan.created_at)  # it would be asked about again after a pause
    work_off(plan)
    assert step_of(plan).status == "failed" and not Call.objects.exclude(status="cancelled").exists()
    assert [each.status for each in ApprovalRequest.objects.all()] == ["invalidated"]

    accept_version(row, 2, by=admin, reason="Looks right")
    row.refresh_from_db()
    assert (row.status, current_version("drop_page").number) == ("ready", 2)
    assert prepare_call("drop_page", {}).target.version_number == 2
    assert "drop_page" in tools_callable_by(Requester(ada))


def test_words_of_a_trusted_source_are_taken_up(source, offer):
    offer(READ, {**DROP, "description": "Delete one page"})
    assert sync_source(source).changed == ["drop_page"]
    assert current_version("drop_page").description == "Delete one page"


def test_change_that_was_not_yet_imported_does_not_run(source, ada, rosa, offer):
    """The upstream is asked for the definition before each call that is not safe."""
    plan = work_off(make_plan(ada, step(1, "drop_page", parameters={"text": "a"})))
    approve(plan, rosa)
    offer(READ, {**DROP, "description": "Delete everything"})
    work_off(plan)
    assert (call_of(plan).status, call_of(plan).error_kind) == ("failed", "drifted")


def test_removed_tool_is_kept_in_history_and_calls_say_so(source, offer, ada):
    waiting = make_plan(ada, step(1, "drop_page", parameters={"text": "a"}))
    offer(READ)
    assert sync_source(source).removed == ["drop_page"]
    assert Tool.objects.get(name="drop_page").status == "removed"
    work_off(waiting)
    reason = "The tool drop_page was removed by its source wiki, which offers it no longer."
    assert (step_of(waiting).status, step_of(waiting).error) == ("failed", reason)
    offer(READ, DROP)
    assert sync_source(source).changed == ["drop_page"]
    assert Tool.objects.get(name="drop_page").status == "ready"


def test_upstream_that_is_lost_in_a_dangerous_call_leaves_an_unknown_outcome(
    program_source, ada, rosa, offer, tmp_path
):
    sink = tmp_path / "sink"
    offer(READ, {**DROP, "does": "write and exit", "sink": str(sink)})
    plan = work_off(make_plan(ada, step(1, "drop_page", parameters={"text": "a"})))
    approve(plan, rosa)
    work_off(plan)
    assert call_of(plan).status == "outcome_unknown"
    assert sink.read_text().count("\n") == 1
    offer(READ, DROP)  # the next call connects again
    plan = work_off(make_plan(ada, step(1, "read_page", parameters={"text": "b"})))
    assert call_of(plan).status == "completed"


def test_error_of_an_upstream_fails_the_call_in_its_words(source, ada, offer):
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    offer({**READ, "answer": {"isError": True, "content": [image], "structuredContent": {"code": "NO_ROOM"}}}, DROP)
    call = call_of(work_off(make_plan(ada, step(1, "read_page", parameters={"text": "a"}))))
    assert (call.status, call.error_kind) == ("failed", "upstream_error")
    assert "NO_ROOM" in call.message
    assert [each["type"] for each in call.content_json] == ["image", "text"]


def test_answer_that_is_too_long_or_breaks_its_schema_is_kept_with_a_warning(source, ada, admin, offer):
    offer({**READ, "outputSchema": {"type": "object", "required": ["pages"]}}, DROP)
    sync_source(source)
    accept_version(Tool.objects.get(name="read_page"), 2, by=admin, reason="New output")
    long = {"content": [{"type": "text", "text": "x" * 3_000_000}]}
    for answer, code in (({}, "output_schema"), ({"answer": long}, "cut")):
        offer({**READ, "outputSchema": {"type": "object", "required": ["pages"]}, **answer}, DROP)
        call = call_of(work_off(make_plan(ada, step(1, "read_page", parameters={"text": "a"}))))
        assert call.status == "completed"
        assert [each["code"] for each in call.warnings_json] == [code]
    assert call.content_json[0]["cut"]


def test_result_keeps_its_blocks_without_secrets(source, ada, admin, offer):
    """A credential is masked in texts and inside the bytes of a block; the others stay as they are."""
    update_source(source, {"headers": {"Authorization": "Bearer s3cret-value"}}, by=admin)
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n s3cret-value").decode()
    image = {"type": "image", "data": data, "mimeType": "image/png", "annotations": {"audience": ["user"]}}
    told = {"type": "text", "text": "Bearer s3cret-value"}
    offer({**READ, "answer": {"content": [told, image], "structuredContent": {"id": 1917043659912705296}}}, DROP)
    plan = work_off(make_plan(ada, step(1, "read_page", parameters={"text": "a"}, expected_key="page")))
    call = call_of(plan)
    text, picture = call.content_json
    assert call.response_json["results"] == [{"id": 1917043659912705296}]
    assert plan.memory.get(key="page").value_json == call.response_json
    assert "s3cret" not in text["text"]
    assert picture["annotations"] == {"audience": ["user"]}
    assert bytes(call.blobs.get(number=1).data) == b"\x89PNG\r\n\x1a\n " + b"*" * len("s3cret-value")


def test_upstream_that_cannot_be_started_makes_its_source_fail(admin, transactional_db):
    made = create_source({"name": "gone", "kind": "mcp", "command": ["/no/such/program"]}, by=admin, any_command=True)
    with pytest.raises(UpstreamUnavailable):
        sync_source(made)
    made.refresh_from_db()
    assert made.status == "failing" and "does not exist" in made.error


def test_disabled_source_disables_its_tools(source, admin):
    update_source(source, {"enabled": False}, by=admin)
    assert Tool.objects.get(name="read_page").status == "disabled"
    assert not snapshot.callable_tools()["read_page"].enabled
    assert not callable_versions(Q()).exists()


def test_name_that_is_taken_gets_the_source_as_prefix(source, admin):
    other = create_source({"name": "wiki2", "kind": "mcp", "url": source.url}, by=admin)
    assert sorted(sync_source(other).added) == ["wiki2__drop_page", "wiki2__read_page"]


def test_approval_is_void_when_the_source_points_elsewhere(source, ada, rosa, admin):
    """The digest of an implementation covers where its calls go."""
    plan = work_off(make_plan(ada, step(1, "drop_page", parameters={"text": "a"})))
    approve(plan, rosa)
    update_source(source, {"url": f"{source.url}/other"}, by=admin)
    work_off(plan)
    assert request_of(plan).status == "pending"


def test_server_of_a_real_package_is_imported_and_called(transactional_db, admin, ada):
    """`mcp-server-time` of PyPI, the upstream of the demo."""
    made = create_source({**TIME_SERVER, "trusted": False}, by=admin, any_command=True)
    assert sorted(sync_source(made).added) == ["convert_time", "get_current_time"]
    for name in ("convert_time", "get_current_time"):
        apply_overrides(name, {"safety_level": "safe"}, by=admin, reason="It reads a clock.")
    times = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    plan = work_off(make_plan(ada, step(1, "convert_time", parameters=times)))
    assert call_of(plan).status == "completed" and "21:00" in json.dumps(call_of(plan).response)
    plan = work_off(make_plan(ada, step(1, "convert_time", parameters={**times, "time": "noon"})))
    assert (call_of(plan).status, call_of(plan).error_kind) == ("failed", "upstream_error")
    mcp_client.close_connections()


def test_invariants_hold_after_changes_of_an_upstream(source, ada, admin, offer):
    """Each change of what is called is in the audit log: held, accepted, withdrawn, removed, back, and trusted less."""
    changed = {**READ, "inputSchema": {**TEXT, "required": []}}

    def offer_and_call(*tools):
        offer(*tools)
        sync_source(source)
        return work_off(make_plan(ada, step(1, "read_page", parameters={"text": "a"})))

    offer_and_call(READ, DROP)
    offer(changed, DROP)
    sync_source(source)
    assert_invariants()
    offer_and_call(READ, DROP)
    assert_invariants()
    offer(changed, DROP)
    sync_source(source)
    accept_changes(source, {"read_page": held_digest(Tool.objects.get(name="read_page"))}, by=admin, reason="Fine")
    offer_and_call(changed, DROP)
    assert_invariants()
    offer(DROP)
    sync_source(source)
    offer_and_call(changed, DROP)
    assert_invariants()
    for trusted in (False, True):
        update_source(source, {"trusted": trusted}, by=admin)
        offer_and_call(changed, DROP)
        assert current_version("read_page").safety_level == ("safe" if trusted else "cautious")
        assert_invariants()
