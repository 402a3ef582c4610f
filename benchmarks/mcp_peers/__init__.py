"""Peers of `/mcp` in benchmarks: the SDK's bare echo server, and AgentBarrier in an environment of its own."""
