"""Imported tools: MCP servers, OpenAPI documents and HTTP tools, without rows: reading, calling and showing them."""
