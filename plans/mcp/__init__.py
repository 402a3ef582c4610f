"""The MCP server: tools of the catalog for agents, as calls that people may have to approve."""
