"""Examples of approvals, grants, policies, notifications, insights and audit entries for the OpenAPI document."""

from typing import Any

from catalog.rest.examples import ExampleHook

APPROVAL_ID = "apr_ItZGbZ0e_IM6-hNa6imcViYD"
OTHER_ID = "apr_4tq0mJr2Qx3hF8vZ1bKcWyLd"
PLAN_ID = "plan_wgk1_dyOXTWFMf_z7hQhbasO"
CALL_ID = "call_xGgHnnIHvCBpBOmC3nqkI5oz"
DIGEST = "0dd14bc51dc76101dd2328a72a2a79fa0d31a9ace8ccaa2e187dcddef51e3d81"
OPENED_AT = "2026-11-25T08:39:57.650135Z"
DECIDED_AT = "2026-11-25T08:41:10.948069Z"
DRAFT_TEXT = "# Revenue\n\n| Apple | ? |\n"
FINAL_TEXT = "# Revenue\n\n| Apple | $394.3 B |\n"
ARGUMENTS = {"path": "reports/revenue.md", "content": FINAL_TEXT}
SENTENCE = "Dangerous calls wait for 1 reviewer, 24 h at most."
POLICY_NAME = "Dangerous calls wait for a reviewer"

APPROVAL: dict[str, Any] = {
    "claimed_by": "rosa",
    "claimed_until": "2026-11-25T08:55:56.906514Z",
    "snoozed_until": None,
    "delegated_to": None,
    "delegations": [],
    "escalated_to": None,
    "duplicates": 0,
    "thread": [
        {
            "by": "rosa",
            "text": "The figures match the filings.",
            "at": "2026-11-25T08:40:56.919501Z",
            "verdict": None,
            "is_agent": False,
        }
    ],
    "id": APPROVAL_ID,
    "status": "pending",
    "digest": DIGEST,
    "tool": "write_file",
    "version": 1,
    "safety_level": "dangerous",
    "reversibility": "restorable",
    "arguments": ARGUMENTS,
    "defaults": [],
    "omitted": [],
    "preview": {
        "summary": "Replace reports/revenue.md",
        "kind": "diff",
        "before": DRAFT_TEXT,
        "after": FINAL_TEXT,
        "rows": [],
        "state_token": "sha256:9eeb402e09a279162304f015ece28668c49dc0d970d8f6807e2248f981a69ba2",
    },
    "plan": PLAN_ID,
    "step_id": 2,
    "call": CALL_ID,
    "requester": "Research agent",
    "requested_by": "ada",
    "reason": "The brief is complete.",
    "policy": {
        "name": POLICY_NAME,
        "rule": f"{POLICY_NAME} r1",
        "sentence": SENTENCE,
        "quorum": 1,
        "groups": ["reviewer"],
    },
    "round": 1,
    "votes": [],
    "opened_at": OPENED_AT,
    "expires_at": "2026-11-26T08:39:57.650135Z",
    "decided_at": None,
    "effective_at": None,
    "may_decide": True,
    "why_not": None,
    "one_more": None,
    "superseded_by": None,
}
PENDING = APPROVAL | {
    "rounds": [{"number": 1, "arguments": ARGUMENTS, "digest": DIGEST, "editor": None, "at": OPENED_AT}],
    "precedent": [
        {
            "id": OTHER_ID,
            "status": "consumed",
            "verdict": "approve",
            "decided_by": "tomas",
            "comment": "",
            "decided_at": "2026-11-24T15:02:11.402118Z",
            "outcome": "completed",
            "alike": True,
        }
    ],
}
VOTE = {
    "round": 1,
    "person": "rosa",
    "verdict": "approve",
    "comment": "Checked against the 10-K.",
    "effect": "fail",
    "on_behalf_of": None,
    "at": DECIDED_AT,
    "undone_at": None,
}
APPROVED = PENDING | {
    "status": "approved",
    "votes": [VOTE],
    "decided_at": DECIDED_AT,
    "effective_at": DECIDED_AT,
    "may_decide": False,
}
SNOOZED = PENDING | {"snoozed_until": "2026-11-25T13:00:00.000000Z"}
DELEGATED = PENDING | {
    "delegated_to": "tomas",
    "delegations": [{"by": "rosa", "to": "tomas", "at": "2026-11-25T08:41:02.114007Z"}],
}
GRANT_ROWS = [
    {"path": "path", "operator": "starts_with", "value": "reports/"},
    {"path": "content", "operator": "exists", "value": True},
]
GRANT = {
    "id": "grant_5mRc0vNq7yXkT2sJ9hBwLzQe",
    "tool": "write_file",
    "arguments": GRANT_ROWS,
    "sentence": "path starts with “reports/” and content is given",
    "scope": "requester",
    "scope_ref": "ada",
    "expires_at": "2026-11-26T08:45:00.000000Z",
    "max_uses": 20,
    "uses": 3,
    "created_from": APPROVAL_ID,
    "created_by": "rosa",
    "created_at": "2026-11-25T08:45:00.000000Z",
    "status": "active",
    "ended_because": None,
    "revoked_at": None,
    "revoked_by": None,
}
REVOKED_GRANT = GRANT | {
    "status": "revoked",
    "ended_because": "Revoked by rosa.",
    "revoked_at": "2026-11-25T09:30:00.000000Z",
    "revoked_by": "rosa",
}
PAYMENT_TERMS: dict[str, Any] = {
    "name": "Payments over 1,000 need two reviewers",
    "match": {"tool": "send_*", "arguments": [{"path": "amount", "operator": "greater_than", "value": 1000}]},
    "effect": "hold",
    "stages": [{"group": "reviewer", "count": 2}],
    "expires_seconds": 14400,
    "on_expiry": "escalate",
    "escalate_to": "administrator",
}
PAYMENT_SENTENCE = (
    "Calls of send_* where amount is more than 1000 wait for 2 reviewers, 4 h at most, then also for administrator."
)
POLICY: dict[str, Any] = PAYMENT_TERMS | {
    "match": {
        "tool": "send_*",
        "category": "",
        "safety_level": "",
        "source": "",
        "requester": "",
        "plan": "",
        "arguments": PAYMENT_TERMS["match"]["arguments"],
        "hours": "",
    },
    "message": "",
    "remind": True,
    "batchable": False,
    "allow_self_review": False,
    "editor_may_approve": True,
    "reason_required": True,
    "min_review_seconds": 0,
    "typed_target": False,
    "fresh_sign_in_seconds": 0,
    "min_role_age_seconds": 0,
    "notify": [],
    "id": "pol_uMzjr2mauN-D_7pwo3DXcYj8",
    "order": 2,
    "enabled": True,
    "revision": 1,
    "sentence": PAYMENT_SENTENCE,
    "created_at": "2026-11-25T08:39:57.506348Z",
    "ended_at": None,
}
POLICY_DETAIL = POLICY | {
    "revisions": [
        {"number": 1, "sentence": PAYMENT_SENTENCE, "created_at": POLICY["created_at"], "created_by": "admin"}
    ],
}
ENDED_POLICY = POLICY_DETAIL | {"enabled": False, "ended_at": "2026-11-25T10:00:00.000000Z"}
SIMULATION = {
    "effect": "hold",
    "policy": POLICY_NAME,
    "rule": f"{POLICY_NAME} r1",
    "sentence": SENTENCE,
    "stages": [{"group": "reviewer", "count": 1}],
    "passed": [
        {
            "policy": PAYMENT_TERMS["name"],
            "reasons": ["write_file is not send_*", "not every condition holds: amount is more than 1000"],
        }
    ],
}
BACK_TEST = {
    "held": 12,
    "allowed": 240,
    "denied": 1,
    "rejected": 0,
    "other_people": 2,
    "calls": 253,
    "matched": 14,
    "changed": [{"call": CALL_ID, "before": "allow", "after": "hold"}],
    "next": None,
}
ENTRY = {
    "seq": 57,
    "at": DECIDED_AT,
    "actor": "rosa",
    "action": "approval.reviewed",
    "object": APPROVAL_ID,
    "tool": "write_file",
    "plan": PLAN_ID,
    "digest": DIGEST,
    "details": {"verdict": "approve", "comment": "Checked against the 10-K."},
    "prev_hash": "3d1c59693ebe0d104ca43e6e4e23f5fdcdede008b7c0b05d572321408e4752f1",
    "hash": "654fd83fc7093cbc6ca2b2f91fd3ec58b1a0d1c88a13a39811b41a086fbd659a",
}
DELIVERY = {
    "id": 31,
    "event": "opened",
    "request": APPROVAL_ID,
    "person": "rosa",
    "channel": "mail",
    "address": "r…@example.com",
    "status": "sent",
    "attempts": 1,
    "error": "",
    "due_at": OPENED_AT,
    "created_at": OPENED_AT,
    "sent_at": "2026-11-25T08:39:59.120447Z",
}
CHOICE = {
    "by_mail": True,
    "addresses": ["slack://…/team"],
    "quiet_from": "22:00",
    "quiet_until": "07:00",
    "time_zone": "Europe/Berlin",
}
DECISIONS = {
    "count": 20,
    "verdicts": {"approve": 17, "reject": 2, "respond": 0, "request_changes": 1},
    "approve_rate": 0.85,
    "median_seconds": 48.0,
    "p95_seconds": 610.5,
}
INSIGHTS = {
    "days": 30,
    "since": "2026-10-26T08:40:28.958762Z",
    "decisions": DECISIONS,
    "unanswered": {"expired": 1, "withdrawn": 2},
    "waiting": 1,
    "oldest": OPENED_AT,
    "ages": [{"under_seconds": 3600, "count": 1}, {"under_seconds": None, "count": 0}],
    "per_day": [{"day": "2026-11-25", "approved": 17, "others": 3}],
    "reviewers": [{"person": "rosa", "name": "Rosa", "reviews": DECISIONS, "share": 1.0, "is_reflex": False}],
    "tools": [{"tool": "write_file", "decisions": DECISIONS, "waiting": 1}],
    "is_cut": False,
}

add_examples = ExampleHook(
    requests={
        "AuditExportBody": {
            "The decisions of November, as CSV": {
                "format": "csv",
                "action": "approval.decided",
                "since": "2026-11-01T00:00:00Z",
                "until": "2026-12-01T00:00:00Z",
            },
        },
        "BackTestBody": {
            "A policy in force": {"policy": POLICY["id"], "days": 7},
            "A policy that is not stored": {"policy": PAYMENT_TERMS, "days": 30},
        },
        "BatchBody": {
            "Reject two requests": {
                "verdict": "reject",
                "comment": "The export is no longer needed.",
                "items": [{"id": APPROVAL_ID, "seen_digest": DIGEST}, {"id": OTHER_ID, "seen_digest": DIGEST}],
            },
            "Snooze a request": {
                "verdict": "snooze",
                "until": "2026-11-25T13:00:00Z",
                "items": [{"id": APPROVAL_ID}],
            },
        },
        "ChoiceBody": {
            "Quiet at night": {"quiet_from": "22:00", "quiet_until": "07:00", "time_zone": "Europe/Berlin"},
        },
        "CommentBody": {"A question": {"text": "Which filing are the figures from?"}},
        "DelegateBody": {"Delegate to tomas": {"to": "tomas"}, "End the delegation": {"to": None}},
        "GrantBody": {
            "Reports of ada, for a day": {
                "tool": "write_file",
                "arguments": GRANT_ROWS,
                "scope": "requester",
                "scope_ref": "ada",
                "max_uses": 20,
                "created_from": APPROVAL_ID,
            },
        },
        "PolicyBody": {"Two reviewers for large payments": PAYMENT_TERMS},
        "PolicyChangeBody": {
            "Three reviewers": {"stages": [{"group": "reviewer", "count": 3}], "revision": 1},
            "Switch the policy off": {"enabled": False},
            "Move the policy to the front": {"order": 0},
        },
        "RemarkBody": {"With a comment": {"comment": "No longer needed."}, "Without": {}},
        "ReviewBody": {
            "Approve": {"verdict": "approve", "seen_digest": DIGEST, "comment": "Checked against the 10-K."},
            "Approve with other arguments": {
                "verdict": "approve",
                "seen_digest": DIGEST,
                "arguments": ARGUMENTS | {"path": "reports/2022/revenue.md"},
            },
            "Reject": {"verdict": "reject", "seen_digest": DIGEST, "comment": "Wrong year.", "effect": "fail"},
            "Request changes": {"verdict": "request_changes", "seen_digest": DIGEST, "comment": "Name the source."},
            "Respond in place of the tool": {
                "verdict": "respond",
                "seen_digest": DIGEST,
                "response": {"path": "reports/revenue.md", "bytes": 31},
            },
        },
        "SecretPathBody": {"One argument": {"path": "headers.Authorization"}},
        "SimulateBody": {
            "A call of write_file": {"tool": "write_file", "arguments": ARGUMENTS, "requester": "ada"},
        },
        "SnoozeBody": {
            "Until this afternoon": {"until": "2026-11-25T13:00:00Z"},
            "End the snooze": {"until": None},
        },
    },
    responses={
        "Approval": {"A pending request": APPROVAL},
        "ApprovalDetail": {"A pending request": PENDING},
        "approvals_delegate": {"The delegated request": DELEGATED},
        "approvals_release": {"The released request": PENDING | {"claimed_by": None, "claimed_until": None}},
        "approvals_review": {"The approved request": APPROVED},
        "approvals_revoke": {"The revoked approval": APPROVED | {"status": "revoked"}},
        "approvals_snooze": {"The snoozed request": SNOOZED},
        "approvals_withdraw": {"The withdrawn request": PENDING | {"status": "withdrawn", "may_decide": False}},
        "AuditEntry": {"A review": ENTRY},
        "BackTest": {"A week of calls": BACK_TEST},
        "BatchResult": {
            "One recorded, one refused": {
                "results": [
                    {"id": APPROVAL_ID, "status": "rejected"},
                    {"id": OTHER_ID, "status": "conflict", "detail": "Tomas approved it at 08:41."},
                ]
            },
        },
        "Choice": {"Mail and one address": CHOICE},
        "Delivery": {"A mail that was sent": DELIVERY},
        "Grant": {"A grant in force": GRANT},
        "grants_revoke": {"The revoked grant": REVOKED_GRANT},
        "Insights": {"A month": INSIGHTS},
        "Policy": {"A policy": POLICY},
        "PolicyDetail": {"A policy": POLICY_DETAIL},
        "PolicySentence": {
            "Two reviewers for large payments": {"sentence": PAYMENT_SENTENCE, "also": [], "warnings": []},
        },
        "policies_end": {"The ended policy": ENDED_POLICY},
        "Secret": {"One value": {"path": "headers.Authorization", "value": "Bearer abc"}},
        "Simulation": {"Held for one reviewer": SIMULATION},
        "Verification": {
            "Intact": {"intact": True, "entries": 58, "checkpoints": 2},
            "A changed entry": {
                "intact": False,
                "entries": 58,
                "checkpoints": 2,
                "first_bad": 41,
                "reason": "The hash of entry 41 does not match its content.",
            },
        },
        "audit_export application/jsonl": {"One entry": '{"seq": 57, "at": "2026-11-25T08:41:10.948069Z", …}\n'},
        "audit_export text/csv": {
            "One entry": "seq,at,actor,action,object,tool,plan,digest,details,prev_hash,hash\r\n57,2026-11-25T…\r\n",
        },
    },
)
