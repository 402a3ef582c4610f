"""The pages of agents: the list, one agent with its form, and giving it a task."""
