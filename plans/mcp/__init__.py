"""The MCP server: the tools of the catalog for agents, with approval of dangerous calls."""
