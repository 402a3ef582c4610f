"""Pages of agents: the list, one agent with its form, and its tasks."""
