"""Connections: MCP clients that signed in with OAuth 2.1, and the authorization server that makes them."""
