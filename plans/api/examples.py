"""Examples of plans, drafts, sessions, agents, calls and slices for the OpenAPI document."""

from typing import Any

from catalog.core.content import PICTURES
from catalog.rest.examples import ExampleHook

PLAN_ID = "plan_wgk1_dyOXTWFMf_z7hQhbasO"
CALL_ID = "call_yrYdJAoXCqYVWJVn4VlOMf27"
HELD_CALL_ID = "call_xGgHnnIHvCBpBOmC3nqkI5oz"
APPROVAL_ID = "apr_ItZGbZ0e_IM6-hNa6imcViYD"
DIGEST = "0dd14bc51dc76101dd2328a72a2a79fa0d31a9ace8ccaa2e187dcddef51e3d81"
CREATED_AT = "2026-11-25T08:39:57.599141Z"
STARTED_AT = "2026-11-25T08:39:57.625172Z"
FINISHED_AT = "2026-11-25T08:39:57.627187Z"
HELD_AT = "2026-11-25T08:39:57.650135Z"
EXPIRES_AT = "2026-11-26T08:39:57.650135Z"
GOAL = "Save Apple's revenue of fiscal 2022"
TEXT = "Apple's revenue was $394.3 B."

LOOK_UP: dict[str, Any] = {
    "step_id": 1,
    "description": "Look up Apple's revenue",
    "tool": "sec_financial_data",
    "parameters": {
        "query_type": "financial_facts",
        "parameters": {"ticker": "AAPL", "metrics": ["Revenue"], "filing_type": "10-K"},
    },
    "expected_key": "apple",
    "output_path": ["results"],
}
SAVE: dict[str, Any] = {
    "step_id": 2,
    "description": "Save the figure",
    "tool": "write_file",
    "parameters": {"path": "reports/apple.md", "content": "${apple.0.value}"},
    "dependencies": [1],
    "expected_key": "saved",
    "output_path": ["results", "0"],
}
DOCUMENT: dict[str, Any] = {"goal": GOAL, "steps": [LOOK_UP, SAVE]}
TASK: dict[str, Any] = {
    "goal": "Compare Apple's and Microsoft's revenue",
    "steps": [
        {
            "step_id": 1,
            "description": "Compare Apple's and Microsoft's revenue",
            "agent": "researcher",
            "expected_key": "answer",
            "output_path": ["results", "0"],
        }
    ],
}
NOT_BEGUN: dict[str, Any] = {
    "parent": None,
    "agent": None,
    "dependencies": [],
    "done_check": None,
    "status": "pending",
    "skipped": False,
    "waiting_for": None,
    "attempt": 0,
    "error": None,
    "call": None,
    "left_running": None,
    "approval": None,
    "started_at": None,
    "completed_at": None,
    "agent_run": None,
}
LOOKED_UP = (
    NOT_BEGUN
    | LOOK_UP
    | {
        "status": "completed",
        "attempt": 1,
        "call": CALL_ID,
        "started_at": STARTED_AT,
        "completed_at": FINISHED_AT,
    }
)
WAITING = (
    NOT_BEGUN
    | SAVE
    | {
        "status": "in_progress",
        "waiting_for": "approval",
        "attempt": 1,
        "call": HELD_CALL_ID,
        "approval": APPROVAL_ID,
        "started_at": HELD_AT,
    }
)
COUNTS = {
    "steps": 2,
    "pending": 0,
    "in_progress": 1,
    "waiting": 1,
    "completed": 1,
    "skipped": 0,
    "failed": 0,
    "cancelled": 0,
}
PLAN: dict[str, Any] = {
    "id": PLAN_ID,
    "goal": GOAL,
    "kind": "plan",
    "status": "in_progress",
    "owner": "agent",
    "requested_by": "ada",
    "can_modify": True,
    "created_at": CREATED_AT,
    "started_at": STARTED_AT,
    "completed_at": None,
    "deadline_at": None,
    "paused_at": None,
    "paused_by": None,
    "budget": {"calls": 20, "seconds": 600, "calls_used": 1, "seconds_used": 0.002},
    "request": None,
    "reply": None,
    "last_seq": 8,
    "counts": COUNTS,
}
PLAN_DETAIL: dict[str, Any] = PLAN | {
    "cloned_from": None,
    "clones": [],
    "failure": None,
    "steps": [LOOKED_UP, WAITING],
}
NEW_COUNTS = COUNTS | {"pending": 2, "in_progress": 0, "waiting": 0, "completed": 0}
NEW_PLAN = PLAN_DETAIL | {
    "status": "pending",
    "started_at": None,
    "budget": None,
    "last_seq": 1,
    "counts": NEW_COUNTS,
    "steps": [NOT_BEGUN | LOOK_UP, NOT_BEGUN | SAVE],
}
CLONE = NEW_PLAN | {"id": "plan_8hQm3xRt5vJc0wYkN2zLbPsD", "cloned_from": PLAN_ID}
CANCELLED = PLAN_DETAIL | {
    "status": "cancelled",
    "completed_at": "2026-11-25T08:50:00.000000Z",
    "counts": COUNTS | {"in_progress": 0, "waiting": 0, "cancelled": 1},
    "steps": [LOOKED_UP, WAITING | {"status": "cancelled", "waiting_for": None}],
}
PAUSED = PLAN_DETAIL | {"paused_at": "2026-11-25T08:45:00.000000Z", "paused_by": "ada"}
SKIPPED = PLAN_DETAIL | {
    "status": "completed",
    "completed_at": "2026-11-25T08:50:00.000000Z",
    "counts": COUNTS | {"in_progress": 0, "waiting": 0, "completed": 2, "skipped": 1},
    "steps": [LOOKED_UP, WAITING | {"status": "completed", "skipped": True, "waiting_for": None}],
}
FACTS = [{"ticker": "AAPL", "metric": "Revenue", "fiscal_year": 2022, "value": 394328, "unit": "USD millions"}]
CALL: dict[str, Any] = {
    "id": CALL_ID,
    "message": "OK",
    "plan": PLAN_ID,
    "step_id": 1,
    "tool": "sec_financial_data",
    "version": 1,
    "query_type": "financial_facts",
    "arguments": LOOK_UP["parameters"],
    "defaults": [],
    "omitted": [],
    "status": "completed",
    "waiting_for": None,
    "result": {
        "query_type": "financial_facts",
        "parameters": LOOK_UP["parameters"]["parameters"],
        "results": FACTS,
        "output_key": "sec_financial_data",
        "success": True,
    },
    "content": [],
    "warnings": [],
    "approval": None,
    "grant": None,
    "replaces": None,
    "replaced_by": None,
    "attempt": 1,
    "implementation": "catalog.toolsets.finance:sec_financial_data",
    "reason": "",
    "requested_by": "ada",
    "created_at": CREATED_AT,
    "started_at": STARTED_AT,
    "finished_at": FINISHED_AT,
    "duration_ms": 2,
}
HELD_CALL = CALL | {
    "id": HELD_CALL_ID,
    "message": "",
    "tool": "write_file",
    "query_type": None,
    "arguments": {"path": "reports/apple.md", "content": TEXT},
    "status": "waiting",
    "waiting_for": "approval",
    "result": None,
    "approval": {
        "id": APPROVAL_ID,
        "url": f"https://toolgate.example.com/approvals/?item={APPROVAL_ID}",
        "expires_at": EXPIRES_AT,
    },
    "attempt": 0,
    "implementation": "catalog.toolsets.workspace:write_file",
    "started_at": None,
    "finished_at": None,
    "duration_ms": None,
}
PROBLEM = {
    "path": "steps.0.tool",
    "line": 4,
    "code": "unknown_tool",
    "severity": "error",
    "message": "There is no tool called read_fil.",
    "suggestion": "read_file",
}
EVENTS = [
    {"seq": 1, "type": "plan.created", "at": CREATED_AT, "step_id": None, "data": {}},
    {"seq": 2, "type": "plan.started", "at": STARTED_AT, "step_id": None, "data": {}},
    {"seq": 3, "type": "step.started", "at": STARTED_AT, "step_id": 1, "data": {"attempt": 1}},
    {
        "seq": 8,
        "type": "step.waiting",
        "at": HELD_AT,
        "step_id": 2,
        "data": {"waiting_for": "approval", "call": HELD_CALL_ID, "approval": APPROVAL_ID},
    },
]
PROMPT = {
    "call": CALL_ID,
    "purpose": "agent",
    "model": "openai:gpt-5",
    "read": [{"by": "Instructions", "text": "Finds things out from filings."}, {"by": "To the model", "text": GOAL}],
    "said": [{"by": "From the model", "text": TEXT}],
    "input_tokens": 812,
    "output_tokens": 24,
    "cost": 0.0021,
    "latency_ms": 1240,
    "error": "",
    "at": STARTED_AT,
}
AGENT: dict[str, Any] = {
    "name": "researcher",
    "instructions": "Finds things out from filings, and writes what it found to a file.",
    "model": "",
    "tools": {"names": ["sec_financial_data", "write_file"], "categories": [], "max_level": "dangerous"},
    "strategy": "plan_act_reflect",
    "budget": {"rounds": 12, "calls": 40, "tokens": 200000, "cost": None, "seconds": 900},
    "groups": [],
    "enabled": True,
    "created_at": CREATED_AT,
    "updated_at": CREATED_AT,
    "runs": 3,
    "may_use": True,
}
AGENT_TERMS = ("name", "instructions", "tools", "strategy", "budget")
SESSION: dict[str, Any] = {
    "id": PLAN_ID,
    "name": "",
    "requested_by": "ada",
    "token": "Research agent",
    "token_id": 1,
    "goal": None,
    "status": None,
    "created_at": None,
    "completed_at": None,
}
SESSION_DETAIL = SESSION | {
    "steps": [],
    "calls": [
        {
            "id": HELD_CALL_ID,
            "tool": "write_file",
            "status": "waiting",
            "plan": PLAN_ID,
            "step_id": 2,
            "created_at": HELD_AT,
        }
    ],
}
DRAFT = {
    "id": "call_2zVtB7qKp4mXcR9sWnLd0hYf",
    "status": "completed",
    "request": "Save Apple's revenue of fiscal 2022 to a file.",
    "strategy": "react",
    "output": {"goal": GOAL, "steps": [LOOK_UP, SAVE]},
    "plan": DOCUMENT,
    "problems": [],
    "model": "openai:gpt-5",
    "tokens": 1204,
    "started_plan": None,
}
SLICE_ITEM: dict[str, Any] = {
    "claimed_by": None,
    "claimed_until": None,
    "snoozed_until": None,
    "delegated_to": None,
    "delegations": [],
    "escalated_to": None,
    "duplicates": None,
    "thread": [],
    "id": APPROVAL_ID,
    "status": "pending",
    "digest": DIGEST,
    "seen_digest": DIGEST,
    "tool": "write_file",
    "version": 1,
    "safety_level": "dangerous",
    "reversibility": "restorable",
    "arguments": {"path": "reports/apple.md", "content": TEXT},
    "defaults": [],
    "omitted": [],
    "preview": None,
    "plan": PLAN_ID,
    "step_id": 2,
    "call": HELD_CALL_ID,
    "requester": "Research agent",
    "requested_by": "ada",
    "reason": "",
    "policy": {
        "name": "Dangerous calls wait for a reviewer",
        "rule": "Dangerous calls wait for a reviewer r1",
        "sentence": "Dangerous calls wait for 1 reviewer, 24 h at most.",
        "quorum": 1,
        "groups": ["reviewer"],
    },
    "round": 1,
    "votes": [],
    "opened_at": HELD_AT,
    "expires_at": EXPIRES_AT,
    "decided_at": None,
    "effective_at": None,
    "may_decide": True,
    "why_not": None,
    "one_more": None,
    "superseded_by": None,
}

CONTENT_URL = f"https://toolgate.example.com/api/v1/calls/{CALL['id']}/content"

add_examples = ExampleHook(
    requests={
        "AgentDocument": {"A researcher": {name: AGENT[name] for name in AGENT_TERMS}},
        "AgentTerms": {"A smaller budget": {"budget": {"rounds": 6, "calls": 10}}, "Disable": {"enabled": False}},
        "CallBody": {
            "Write a file": {
                "tool": "write_file",
                "arguments": {"path": "reports/apple.md", "content": TEXT},
                "reason": "The brief is complete.",
                "wait_seconds": 20,
            },
        },
        "CloneBody": {"Start at once": {"start": True}},
        "DraftBody": {"A request in words": {"request": DRAFT["request"], "strategy": "react"}},
        "DraftStartBody": {"As it was drafted": {}, "With changes": {"plan": DOCUMENT}},
        "InputBody": {
            "Answer a question": {"step_id": 2, "text": "Use the 10-K of 2022."},
            "New arguments for a step that was sent back": {
                "step_id": 2,
                "arguments": {"path": "reports/2022/apple.md", "content": TEXT},
            },
        },
        "OutcomeBody": {
            "It happened": {"verdict": "happened", "result": {"id": "msg_42"}, "comment": "The mail arrived."},
            "Ask for a new approval": {"verdict": "request_again", "comment": "No trace of it in the outbox."},
        },
        "PlanChange": {
            "Edit one step and remove another": {
                "edit": [{"step_id": 2, "parameters": {"path": "reports/a.md", "content": "${apple.0.value}"}}],
                "remove": [3],
                "seen_seq": 8,
            },
        },
        "PlanDocument": {
            "Two steps": DOCUMENT,
            "A task for an agent": TASK,
            "With a budget, to be started later": DOCUMENT | {"budget": {"calls": 20, "seconds": 600}, "start": False},
        },
        "PreviewBody": {"A file": {"arguments": {"path": "reports/apple.md", "content": TEXT}}},
        "RetryBody": {
            "All failed steps": {},
            "One step with other arguments": {
                "step_id": 2,
                "arguments": {"path": "reports/2022/apple.md", "content": TEXT},
            },
        },
        "RevealBody": {"One value": {"path": "results.0.value"}},
        "SkipBody": {"Skip": {"reason": "The file is already there."}},
        "SliceBody": {
            "Approve one step": {
                "plan": PLAN_ID,
                "items": [{"id": APPROVAL_ID, "seen_digest": DIGEST, "step_id": 2, "tool": "write_file"}],
            },
        },
        "SlicePreviewBody": {"The next three gated steps": {"plan": PLAN_ID, "count": 3}},
    },
    responses={
        "Agent": {"An agent": AGENT},
        "Call": {
            "A call that waits for approval": HELD_CALL,
            "A completed call": CALL,
            "An answer with an image that was cut": CALL
            | {
                "content": [
                    {"type": "text", "text": "The page as an image:"},
                    {"type": "image", "mimeType": "image/png", "bytes": 48211, "url": f"{CONTENT_URL}/1/"},
                    {"type": "image", "mimeType": "image/png", "bytes": 2048211, "cut": True},
                ],
                "warnings": [{"code": "cut", "message": "The content was too large: 1,048,576 bytes of it are kept."}],
            },
        },
        "CallPreview": {
            "A call that would wait for approval": {
                "safety_level": "dangerous",
                "effect": "hold",
                "message": None,
                "preview": {
                    "summary": "Create reports/apple.md",
                    "kind": "diff",
                    "before": "",
                    "after": TEXT,
                    "rows": [],
                    "state_token": "absent",
                },
            },
        },
        **{f"calls_content {kind}": {"The bytes": "…"} for kind in ("application/octet-stream", *PICTURES)},
        "Check": {
            "No problems": {"valid": True, "problems": []},
            "An unknown tool": {"valid": False, "problems": [PROBLEM]},
        },
        "Draft": {"A draft": DRAFT},
        "EventPage": {"The first events": {"next": None, "previous": None, "results": EVENTS}},
        "Memory": {
            "One value": {
                "values": {"apple": FACTS},
                "items": [{"type": "value", "step_id": 1, "key": "apple", "at": FINISHED_AT}],
            },
        },
        "Plan": {"A plan": PLAN},
        "PlanDetail": {"A plan with a step that waits for approval": PLAN_DETAIL},
        "PlanRefusal": {
            "An unknown tool": {
                "type": "urn:toolgate:invalid",
                "title": "Unprocessable Entity",
                "status": 422,
                "detail": f"{PROBLEM['path']}: {PROBLEM['message']}",
                "errors": [PROBLEM],
            },
        },
        "plans_cancel": {"The cancelled plan": CANCELLED},
        "plans_clone": {"The new plan": CLONE},
        "plans_create": {"The new plan": NEW_PLAN},
        "plans_pause": {"The paused plan": PAUSED},
        "plans_skip_step": {"The skipped step was the last": SKIPPED},
        "Prompt": {"One answer of a model": PROMPT},
        "Revealed": {"One value": {"path": "results.0.value", "value": 394328}},
        "Session": {"A session without a list": SESSION | {"last_active_at": HELD_AT}},
        "SessionDetail": {"A session without a list": SESSION_DETAIL},
        "Slice": {
            "One step to decide": {
                "results": [SLICE_ITEM],
                "left": [],
                "ahead": [{"step_id": 2, "tool": "write_file", "stands": "asked", "why": ""}],
            },
        },
    },
)
