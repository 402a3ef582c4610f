"""What `/mcp` is compared with: the SDK's bare echo server, and AgentBarrier in an environment of its own."""
