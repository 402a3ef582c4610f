"""Examples of tools and tokens for the OpenAPI document."""

from typing import Any

from catalog.rest.examples import ExampleHook

INPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "content"],
    "properties": {
        "path": {"type": "string", "maxLength": 1024, "description": "Path of the file, relative to the workspace"},
        "content": {"type": "string", "description": "The whole new text of the file"},
    },
}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": True}
ANNOTATIONS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}
DESCRIPTION = "Write content to a file of the workspace, replacing it if it exists."
FINGERPRINT = "0f55b3414ad70ca8ddb582865bc5ddb83573f9819e304383b8458286f5070f0c"
LAST_CALL_AT = "2026-11-25T08:39:57.650135Z"

TOOL: dict[str, Any] = {
    "name": "write_file",
    "description": DESCRIPTION,
    "version": 1,
    "fingerprint": FINGERPRINT,
    "safety_level": "dangerous",
    "reversibility": "restorable",
    "categories": ["filesystem"],
    "source": "catalog.toolsets.workspace",
    "enabled": True,
    "registered": True,
}
OUTCOME = {
    "id": 4,
    "kind": "python",
    "reference": "catalog.toolsets.workspace:write_file",
    "digest": "737eeaf261ff5ce0265f925fa226b4325c1f7d93b9e72405a4f04029afe9b35d",
    "weight": 100,
    "enabled": True,
    "registered": True,
    "share": 1.0,
    "calls": 42,
    "completed": 40,
    "failed": 2,
    "success_rate": 0.952,
    "p50_ms": 3.1,
    "p95_ms": 8.4,
    "last_call_at": LAST_CALL_AT,
}
TOOL_DETAIL = TOOL | {
    "input_schema": INPUT_SCHEMA,
    "output_schema": OUTPUT_SCHEMA,
    "query_types": [],
    "output_key": "",
    "retry_safe": False,
    "timeout": 30.0,
    "annotations": ANNOTATIONS,
    "declared_description": DESCRIPTION,
    "description_override": None,
    "declared_level": "dangerous",
    "level_override": None,
    "categories_override": None,
    "grantable": {"max_hours": 24, "max_uses": 20},
    "accepts_overrides": True,
    "returns_private_data": False,
    "examples": [],
    "drifted": False,
    "status": "ready",
    "held_version": None,
    "http": None,
    "implementations": [OUTCOME],
    "usage": {"calls": 42, "completed": 40, "failed": 2, "last_call_at": LAST_CALL_AT},
    "created_at": "2026-11-20T08:00:00.000000Z",
    "updated_at": "2026-11-25T08:39:56.632187Z",
}
VERSION = {
    "number": 1,
    "fingerprint": FINGERPRINT,
    "status": "current",
    "is_current": True,
    "changes": None,
    "description": DESCRIPTION,
    "input_schema": INPUT_SCHEMA,
    "output_schema": OUTPUT_SCHEMA,
    "query_types": [],
    "output_key": "",
    "safety_level": "dangerous",
    "reversibility": "restorable",
    "retry_safe": False,
    "timeout": 30.0,
    "annotations": ANNOTATIONS,
    "created_at": "2026-11-20T08:00:00.000000Z",
}
OPENAI_TOOL = {
    "type": "function",
    "function": {"name": "write_file", "description": DESCRIPTION, "parameters": INPUT_SCHEMA},
}
GRAM_TOOL = f"""[write_file:ToolSpecification {{
  description: "{DESCRIPTION}"
}} |
  (::Text {{paramName:"path", description:"Path of the file, relative to the workspace"}})
  ==>(::Text {{paramName:"content", description:"The whole new text of the file"}})
  ==>(::Object)
]"""
TOKEN: dict[str, Any] = {
    "id": 7,
    "name": "Claude Code on my laptop",
    "kind": "agent",
    "scopes": ["tools:read", "calls:create", "plans:read"],
    "owner": "ada",
    "prefix": "tg_Xq3v9ab",
    "learnt_waits": [{"client": "codex", "seconds": 9.4}],
    "created_at": "2026-11-25T09:00:00Z",
    "expires_at": "2027-02-23T09:00:00Z",
    "last_used_at": "2026-11-25T09:12:40Z",
    "revoked_at": None,
    "hold_seconds": None,
}
NEW_TOKEN = TOKEN | {
    "learnt_waits": [],
    "last_used_at": None,
    "token": "tg_Xq3v9abPlaceholderOfFortyThreeMoreCharacters",
}

SOURCE = {
    "id": 7,
    "name": "wiki",
    "kind": "mcp",
    "description": "",
    "url": "https://wiki.example.org/mcp",
    "command": [],
    "base_url": "",
    "only": {},
    "headers": {"Authorization": "••••"},
    "query": {},
    "env": {},
    "trusted": False,
    "enabled": True,
    "timeout": 30,
    "status": "connected",
    "error": "",
    "tools": ["read_page", "delete_page"],
    "drifted": [],
    "held": {},
    "last_sync_at": LAST_CALL_AT,
}
OFFERED_TOOL = {
    "name": "delete_page",
    "description": "Delete a page.",
    "safety_level": "dangerous",
    "why": "no hint that it is harmless",
    "change": "new",
}

add_examples = ExampleHook(
    requests={
        "SourceBody": {
            "An MCP server": {
                "name": "wiki",
                "kind": "mcp",
                "url": SOURCE["url"],
                "headers": {"Authorization": "Bearer …"},
            },
            "An OpenAPI document": {"name": "pets", "kind": "openapi", "url": "https://pets.example.org/openapi.json"},
            "Some operations of an OpenAPI document": {
                "name": "pets",
                "kind": "openapi",
                "url": "https://pets.example.org/openapi.json",
                "only": {"tags": ["pets"], "paths": ["/owners"]},
                "query": {"api_key": "…"},
            },
        },
        "SourceChangeBody": {
            "Trust its hints": {"trusted": True},
            "Lower the level of a tool": {
                "tools": {"read_page": {"safety_level": "safe", "reason": "It reads public pages."}}
            },
        },
        "AcceptanceBody": {
            "A changed tool": {"held": {"read_page": "5e" * 32}, "reason": "The new parameter is harmless."}
        },
        "ToolBody": {
            "A tool that reads an order": {
                "specification": {
                    "name": "read_order",
                    "description": "Read an order of the shop.",
                    "schema": {
                        "type": "object",
                        "properties": {"id": {"type": "integer", "minimum": 1}},
                        "required": ["id"],
                    },
                },
                "safety_level": "safe",
                "categories": ["shop"],
                "http": {"method": "GET", "url": "https://shop.example.org/orders/{id}"},
            },
        },
        "TokenBody": {
            "A token for an agent": {"name": TOKEN["name"], "kind": "agent", "scopes": TOKEN["scopes"], "days": 90},
        },
        "TokenChangeBody": {
            "Reset the learnt waits of its clients": {"learnt_waits": []},
            "Let calls wait at most ten seconds": {"hold_seconds": 10},
        },
        "ToolChangeBody": {
            "Lower the level": {"safety_level": "cautious", "reason": "It only appends to a log."},
            "Disable the tool": {"enabled": False},
            "Allow grants of up to a day": {"grantable": {"max_hours": 24, "max_uses": 20}},
            "Split plans between two implementations": {
                "implementations": [{"id": 4, "weight": 90}, {"id": 9, "weight": 10}]
            },
            "Renew the token of an HTTP tool": {"http": {"headers": {"Authorization": "Bearer …"}}},
        },
        "ValidateBody": {"Arguments of write_file": {"arguments": {"path": "notes/today.md", "content": "# Today"}}},
    },
    responses={
        "CreatedToken": {"The new token": NEW_TOKEN},
        "ListedTool": {"A tool": TOOL | {"calls": 42, "failed": 2, "last_call_at": LAST_CALL_AT}},
        "Outcome": {"An implementation": OUTCOME},
        "OfferedTool": {"A tool": OFFERED_TOOL},
        "Source": {"An MCP server": SOURCE},
        "SourcePreview": {"One new tool": {"tools": [OFFERED_TOOL], "problems": []}},
        "SyncResult": {"One tool was added": {"added": ["delete_page"], "changed": [], "removed": [], "drifted": []}},
        "Token": {"A token of an agent": TOKEN},
        "tokens_revoke": {"The revoked token": TOKEN | {"revoked_at": "2026-11-25T10:30:00Z"}},
        "tokens_current_revoke": {"The revoked token": TOKEN | {"revoked_at": "2026-11-25T10:30:00Z"}},
        "ToolDetail": {"A tool": TOOL_DETAIL},
        "Valid": {"The arguments are valid": {"valid": True}},
        "Version": {"The current version": VERSION},
        "tools_schema": {"For provider=openai": OPENAI_TOOL},
        "tools_schema text/plain": {"For provider=gram": GRAM_TOOL},
        "tools_schemas": {"For provider=openai": [OPENAI_TOOL]},
        "tools_schemas text/plain": {"For provider=gram": GRAM_TOOL},
    },
)
