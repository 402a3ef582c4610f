"""Imported tools (MCP servers, OpenAPI documents, HTTP tools): reading, calling and showing them, without rows."""
